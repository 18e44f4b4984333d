"""Clients that people use, as they come: httpx over HTTP/1.1 and over HTTP/2 by prior knowledge, and aiohttp."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import httpx
import pytest

from tests.acceptance.http.callers import Aiohttp, Caller, Httpx, Place
from tests.kit.restartable_server import PATIENCE_S, Serve, Serving

CLIENTS = ["httpx", "httpx-http2", "aiohttp"]


@pytest.fixture(scope="module")
def server(serve_all: Serve) -> Serving:
    return serve_all()


@pytest.fixture(params=CLIENTS)
async def caller(request: pytest.FixtureRequest, server: Serving) -> AsyncIterator[Caller]:
    place = Place()
    place.moved(server.address)
    made: Caller = Aiohttp(place) if request.param == "aiohttp" else Httpx(place, http2=request.param == "httpx-http2")
    yield made
    await made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name).rstrip("-")


async def ok(caller: Caller, method: str, path: str, body: Any = None) -> dict[str, Any]:
    status, answer = await asyncio.wait_for(caller.call(method, path, body), PATIENCE_S)
    assert status in (200, 201), answer
    return answer


async def test_a_job_from_produce_to_ack(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    made = await ok(caller, "PUT", topic, {"type": "queue", "durability": "fsync"})
    assert made["created"]
    produced = await ok(caller, "POST", topic, {"records": [{"data": {"n": n}, "tag": "t"} for n in range(10)]})
    assert produced["seqs"] == list(range(1, 11))
    claim = await ok(caller, "POST", f"{topic}/claim", {"node": "w", "max": 4})
    assert [job["data"] for job in claim["claimed"]] == [{"n": n} for n in range(4)]
    nacked = await ok(caller, "POST", f"{topic}/nack", {"node": "w", "seqs": [4]})
    assert (nacked["nacked"], nacked["ready"], nacked["in_flight"]) == (1, 7, 3)
    extended = await ok(caller, "POST", f"{topic}/extend", {"node": "w", "seqs": [1], "lease_ms": 60_000})
    assert extended["deadlines"]["1"] > claim["claimed"][0]["deadline"]
    acked = await ok(caller, "POST", f"{topic}/ack", {"node": "w", "lease_id": claim["lease_id"]})
    assert (acked["acked"], acked["ready"], acked["in_flight"]) == (3, 7, 0)
    seen = await ok(caller, "GET", topic)
    assert (seen["count"], seen["queue"]["ready"]) == (7, 7)
    read = await ok(caller, "POST", f"{topic}/diff", {"from_seq": 0, "limit": 3})
    assert [record["$seq"] for record in read["records"]] == [4, 5, 6]
    assert (read["next_from_seq"], read["caught_up"], read["tombstone"]) == (6, False, None)
    assert (await ok(caller, "DELETE", topic))["deleted"]


async def test_errors_are_the_contracts(caller: Caller, name: str) -> None:
    cases: list[tuple[str, str, Any, tuple[int, str]]] = [
        ("GET", f"/v0/topics/{name}", None, (404, "topic_not_found")),
        ("GET", "/v0/nothing", None, (404, "not_found")),
        ("TRACE", f"/v0/topics/{name}", None, (405, "method_not_allowed")),
        ("POST", f"/v0/topics/{name}", {"records": []}, (400, "invalid_request")),
        ("POST", f"/v0/topics/{name}/claim", {"node": ""}, (400, "invalid_request")),
    ]
    for method, path, body, expected in cases:
        status, answer = await caller.call(method, path, body)
        assert (status, answer["error"]["code"]) == expected, (method, path, answer)
        assert answer["error"]["message"]


async def test_a_large_append_and_its_large_answer_go_through(caller: Caller, name: str) -> None:
    """Larger than any window or buffer on the way: eight MiB there, and back in pages."""
    topic = f"/v0/topics/{name}"
    data = ["x" * 8_192 + str(number) for number in range(1_000)]
    await ok(caller, "POST", topic, {"records": [{"data": item} for item in data]})
    found: list[str] = []
    cursor = 0
    while len(found) < len(data):
        page = await ok(caller, "POST", f"{topic}/diff", {"from_seq": cursor, "limit": 1_000})
        found += [record["data"] for record in page["records"]]
        cursor = page["next_from_seq"]
    assert found == data


async def test_many_calls_at_once_are_each_answered_with_their_own(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    bodies = [
        {"records": [{"data": number}] * (number % 3 + 1), "idempotency_key": str(number)} for number in range(60)
    ]
    answers = await asyncio.gather(*(ok(caller, "POST", topic, body) for body in bodies))
    assert [answer["count"] for answer in answers] == [len(body["records"]) for body in bodies]
    seqs = sorted(seq for answer in answers for seq in answer["seqs"])
    assert seqs == list(range(1, len(seqs) + 1))


async def test_a_read_waits_for_a_record(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    await ok(caller, "PUT", topic)
    waiting = asyncio.create_task(ok(caller, "POST", f"{topic}/diff", {"wait_ms": 30_000}))
    await ok(caller, "GET", "/v0/health")
    assert not waiting.done()
    await ok(caller, "POST", topic, {"records": [{"data": "late"}]})
    assert [record["data"] for record in (await waiting)["records"]] == ["late"]


async def test_a_claim_waits_for_a_job(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    await ok(caller, "PUT", topic, {"type": "queue", "durability": "fsync"})
    waiting = asyncio.create_task(ok(caller, "POST", f"{topic}/claim", {"node": "w", "wait_ms": 30_000}))
    await ok(caller, "GET", "/v0/health")
    assert not waiting.done()
    await ok(caller, "POST", topic, {"records": [{"data": "late"}]})
    assert [job["data"] for job in (await waiting)["claimed"]] == ["late"]


async def test_a_work_stream_pushes_refills_and_gives_back(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    await ok(caller, "PUT", topic, {"type": "queue"})
    await ok(caller, "POST", topic, {"records": [{"data": n} for n in range(3)]})
    async with aclosing(caller.events(f"{topic}/work?node=w&max=2")) as events:
        first, second = await anext(events), await anext(events)
        assert [(e["event"], e["id"], e["data"]["data"]) for e in (first, second)] == [("job", "1", 0), ("job", "2", 1)]
        assert (await ok(caller, "POST", f"{topic}/ack", {"node": "w", "seqs": [1]}))["acked"] == 1
        assert (await asyncio.wait_for(anext(events), PATIENCE_S))["data"]["data"] == 2
        coming = asyncio.ensure_future(anext(events))
        await ok(caller, "POST", f"{topic}/ack", {"node": "w", "seqs": [2, 3]})
        await ok(caller, "POST", topic, {"records": [{"data": "late"}]})
        assert (await asyncio.wait_for(coming, PATIENCE_S))["data"]["data"] == "late"
    await caller.close()  # leaving an HTTP/2 stream, httpx does not reset it: the server hears of it by the connection
    back = await ok(caller, "POST", f"{topic}/claim", {"node": "other", "wait_ms": 30_000})
    assert [(job["data"], job["deliveries"]) for job in back["claimed"]] == [("late", 2)]


async def test_a_watch_follows_topics_over_one_stream(caller: Caller, name: str) -> None:
    one, two = f"{name}-1", f"{name}-2"
    await ok(caller, "POST", f"/v0/topics/{one}", {"records": [{"data": "a"}, {"data": "b"}]})
    await ok(caller, "POST", f"/v0/topics/{two}", {"records": [{"data": "old"}]})
    session = await ok(caller, "POST", "/v0/watch", {"topics": {one: {"from_seq": 0}, two: {"tail": True}}})
    assert session["stream_url"] == f"/v0/watch/{session['wid']}"
    async with asyncio.timeout(PATIENCE_S), aclosing(caller.events(session["stream_url"])) as events:
        caught_up: set[str] = set()
        data: list[Any] = []
        while len(caught_up) < 2:
            event = await anext(events)
            if event["event"] == "caught-up":
                caught_up.add(event["data"]["topic"])
            else:
                data += [record["data"] for record in event["data"]["records"]]
        assert data == ["a", "b"]
        await ok(caller, "POST", f"/v0/topics/{two}", {"records": [{"data": "new"}]})
        event = await anext(events)
        assert (event["event"], event["data"]["topic"]) == ("record", two)
        assert [record["data"] for record in event["data"]["records"]] == ["new"]


async def test_lifecycle_events_are_told(caller: Caller, name: str) -> None:
    topic = f"/v0/topics/{name}"
    await ok(caller, "PUT", topic, {"type": "queue"})
    async with asyncio.timeout(PATIENCE_S), aclosing(caller.events(f"{topic}/events")) as events:
        coming = asyncio.ensure_future(anext(events))
        kinds: list[str] = []
        number = 0
        while not {"produced", "claimed", "acked"} <= set(kinds):  # the stream may open in the middle of a job
            await ok(caller, "POST", topic, {"records": [{"data": number}]})
            job = (await ok(caller, "POST", f"{topic}/claim", {"node": "w"}))["claimed"][0]
            await ok(caller, "POST", f"{topic}/ack", {"node": "w", "seqs": [job["$seq"]]})
            number += 1
            while coming.done():
                kinds.append(coming.result()["event"])
                coming = asyncio.ensure_future(anext(events))
                await asyncio.wait([coming], timeout=0.05)
        coming.cancel()
        await asyncio.wait([coming])


# What only one of them shows


def test_http2_is_spoken_on_the_same_port_without_negotiation(server: Serving) -> None:
    with server.client(http1=False, http2=True) as two, server.client() as one:
        assert two.get("/v0/health").http_version == "HTTP/2"
        assert one.get("/v0/health").http_version == "HTTP/1.1"


async def test_one_http2_connection_carries_streams_polls_and_calls_together(server: Serving) -> None:
    limits = httpx.Limits(max_connections=1)
    server.ok("PUT", "/v0/topics/shared", {"type": "queue"})
    async with httpx.AsyncClient(
        base_url=server.address,
        http1=False,
        http2=True,
        trust_env=False,
        verify=False,
        limits=limits,
        timeout=PATIENCE_S,
    ) as client:
        async with client.stream(
            "GET", "/v0/topics/shared/work?node=w", headers={"accept": "text/event-stream"}
        ) as stream:
            assert stream.status_code == 200
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            poll = asyncio.create_task(client.post("/v0/topics/other/diff", json={"wait_ms": 30_000}))
            answers = await asyncio.gather(
                *(client.post("/v0/topics/shared", json={"records": [{"data": n}]}) for n in range(20))
            )
            assert {answer.status_code for answer in answers} == {200}
            async for line in lines:
                if line.startswith("data: "):
                    break
            assert (await poll).status_code == 404
        assert (await client.get("/v0/topics/shared")).json()["count"] == 20


async def test_aiohttp_sends_a_body_in_chunks(server: Serving) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"records":[{"da'
        yield b'ta":"in parts"}]}'

    async with aiohttp.ClientSession() as client:
        headers = {"content-type": "application/json"}
        async with client.post(f"{server.address}/v0/topics/chunked", data=parts(), headers=headers) as answer:
            assert answer.status == 201
            assert (await answer.json())["seqs"] == [1]


def test_keep_alive_serves_many_requests_on_one_connection(server: Serving) -> None:
    with server.client(limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(200):
            assert client.get("/v0/health").status_code == 200
        text = client.get("/v0/metrics", headers={"accept": "application/json"})
        assert text.status_code == 200
