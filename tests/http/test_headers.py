"""Headers that keep browsers and proxies from storing or guessing at answers, on both protocols."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.test_work import SSE
from tests.http.wire_support import serving, talk


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def versions(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"http1": request.param == "HTTP/1.1", "http2": request.param == "HTTP/2"}


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PUT", "/v0/topics/q", 201),
        ("GET", "/v0/topics", 200),
        ("HEAD", "/v0/topics", 200),
        ("GET", "/v0/metrics", 404),
        ("GET", "/v0/topics/absent", 404),
        ("POST", "/v0/topics", 405),
        ("GET", "/v0/topics/absent/events", 406),
        ("GET", "/console/absent.js", 404),
        ("GET", "/v0/topics?" + "x" * 9_000, 414),
    ],
)
async def test_no_answer_is_stored_or_sniffed(
    address: str, versions: dict[str, Any], method: str, target: str, status: int
) -> None:
    async with httpx.AsyncClient(base_url=address, **versions) as client:
        answer = await client.request(method, target)
    assert answer.status_code == status
    assert answer.headers.get_list("cache-control") == ["no-store"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


async def test_no_stream_is_stored_or_sniffed(address: str, versions: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=address, **versions) as client:
        await client.put("/v0/topics/q", json={"type": "queue"})
        async with client.stream("GET", "/v0/topics/q/work?node=w", headers=SSE) as answer:
            assert answer.status_code == 200
            assert answer.headers.get_list("cache-control") == ["no-store"]
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


async def test_a_file_of_the_console_may_be_kept_and_asked_about(address: str, versions: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=address, **versions) as client:
        for headers in ({}, {"if-none-match": (await client.get("/")).headers["etag"]}):
            answer = await client.get("/", headers=headers)
            assert answer.status_code == (304 if headers else 200)
            assert answer.headers.get_list("cache-control") == ["no-cache"]
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


async def test_what_the_wire_itself_refuses_is_not_stored_either() -> None:
    async with serving() as (server, _):
        reply = await talk(server, b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: x\r\n\r\n")
        assert reply.status == 400
        assert (reply.headers["cache-control"], reply.headers["x-content-type-options"]) == ("no-store", "nosniff")
