"""A server that is not to be trusted names addresses in its answers: none of them gets the caller's key (fault 47)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tenure.client import ClientSettings
from tenure.errors import TenureError
from tests.client.both_clients import KINDS, Both, make_client

KEY = "the-key-of-the-caller"
Answer = Callable[[str], tuple[int, dict[str, str], Any]]
"""Return what is answered where this is the stranger's URL: status, headers, body."""


class Fake:
    """A server that gives one answer to everything, and keeps what it was sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answer: tuple[int, dict[str, str], Any] = (404, {}, {})
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                fake.asked.append((f"{self.command} {self.path}", str(self.headers)))
                status, headers, body = fake.answer
                encoded = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            do_GET = do_POST = do_PUT = do_DELETE = respond  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def fakes() -> Iterator[tuple[Fake, Fake]]:
    """The server that the caller named, and one that only its answers name."""
    pair = Fake(), Fake()
    yield pair
    for fake in pair:
        fake.close()


def redirect(status: int, url: str) -> tuple[int, dict[str, str], Any]:
    return status, {"location": f"{url}/v0/x"}, {}


def not_leader(url: str) -> tuple[int, dict[str, str], Any]:
    detail = {"leader": url, "epoch": 9}
    return 421, {"location": url}, {"error": {"code": "not_leader", "message": "no", "detail": detail}}


def cluster(url: str) -> tuple[int, dict[str, str], Any]:
    body = {
        "role": "standby",
        "url": url,
        "leader": url,
        "epoch": 9,
        "number": 1,
        "is_caught_up": True,
        "members": [],
        "home": url,
    }
    return 200, {"link": f'<{url}/v0/topics>; rel="next"'}, body


ANSWERS: dict[str, Answer] = {
    **{str(status): partial(redirect, status) for status in (301, 302, 307, 308)},
    "a leader": not_leader,
    "a cluster": cluster,
    "a next page": lambda url: (200, {"link": f'<{url}>; rel="next"'}, {"topics": [], "next_cursor": url}),
    "a stream": lambda url: (200, {}, {"stream_url": f"{url}/v0/watch/wid_x", "topics": {}}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_address_that_an_answer_names_gets_no_request_with_the_key(
    fakes: tuple[Fake, Fake], kind: str, name: str
) -> None:
    named, stranger = fakes
    named.answer = ANSWERS[name](stranger.url)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda client: client.topics(),
        lambda client: client.cluster(),
        lambda client: client.produce("q", [1]),
        lambda client: client.hand_over(),
    )
    async with make_client(kind, named.url, key=KEY, settings=ClientSettings(retry_for_ms=0)) as client:
        for call in calls:
            await _attempt(call(client))
        if name == "a stream":
            await _attempt(_first_of(client.inner.watch("q")))
    assert KEY in named.asked[0][1]
    assert stranger.asked == []


async def _first_of(feed: Any) -> None:
    async with Both(feed) as both:
        await both.next()


async def _attempt(calling: Any) -> None:
    with suppress(TenureError):
        await calling


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "path",
    [
        "/v0/watch/wid_x HTTP/1.1\r\nhost: b\r\n\r\nDELETE /v0/topics/q",
        "/v0/watch/wid_x\r\nx-more: 1",
        "/v0/watch/wid_x\n",
        "/v0/watch/../topics/q",
        "/v0/topics/q/work?node=n",
        "@127.0.0.1/v0/watch/wid_x",
        "",
    ],
)
async def test_the_path_of_a_stream_is_a_path_and_no_other_request(
    fakes: tuple[Fake, Fake], kind: str, path: str
) -> None:
    """The key of the caller would stand in the head of what the text begins."""
    named, _ = fakes
    named.answer = 200, {}, {"stream_url": path, "topics": {}}
    async with make_client(kind, named.url, key=KEY, settings=ClientSettings(retry_for_ms=0)) as client:
        with pytest.raises(TenureError) as error:
            await _first_of(client.inner.watch("q"))
    assert error.value.code == "bad_answer"
    assert [line.partition("?")[0] for line, _ in named.asked] == ["POST /v0/watch"]


@pytest.mark.parametrize("name", ["302", "a leader", "a cluster"])
@pytest.mark.parametrize("command", [["topics"], ["cluster", "status"], ["cluster", "handover"], ["cluster", "verify"]])
def test_no_command_sends_the_key_or_a_cloud_credential_where_an_answer_says(
    fakes: tuple[Fake, Fake], command: list[str], name: str
) -> None:
    named, stranger = fakes
    status, headers, body = ANSWERS[name](stranger.url)
    if name == "a cluster":
        body["home"] = f"az://c/home?endpoint={stranger.url}&account_name=x"
    named.answer = status, headers, body
    secrets = {
        "TENURE_URL": named.url,
        "TENURE_KEY": KEY,
        "AZURE_STORAGE_TOKEN": "cloud",
        "AWS_SESSION_TOKEN": "cloud",
    }
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TENURE_")}
    run = [sys.executable, "-m", "tenure", *command]
    subprocess.run(run, env=clean | secrets, capture_output=True, timeout=60, check=False)
    assert KEY in named.asked[0][1]
    assert stranger.asked == []
