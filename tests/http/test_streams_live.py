"""The streams over real sockets, read by httpx: what a worker, a watcher and an onlooker see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tenure import Broker
from tenure.http.api.app import App
from tenure.http.api.context import Context
from tenure.http.routes import ROUTES
from tenure.http.server import serve
from tenure.http.settings import ServerSettings
from tests.http.streaming import parse
from tests.http.test_work import SSE
from tests.kit.brokers import numbers

_PATIENCE_S = 30


@pytest.fixture
async def live(broker: Broker) -> AsyncIterator[str]:
    """The address of a server whose quiet streams beat often."""
    app = App(Context(broker, settings=ServerSettings(heartbeat_ms=20)), ROUTES)
    async with await serve(app) as server:
        yield f"http://127.0.0.1:{server.port}"


Connect = Callable[[], httpx.AsyncClient]


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def connect(live: str, request: pytest.FixtureRequest) -> Connect:
    """Makes clients of one protocol or the other, each with connections of its own."""
    old = request.param == "HTTP/1.1"
    return lambda: httpx.AsyncClient(base_url=live, http1=old, http2=not old, timeout=_PATIENCE_S)


@pytest.fixture
async def client(connect: Connect) -> AsyncIterator[httpx.AsyncClient]:
    async with connect() as client:
        yield client


@contextlib.asynccontextmanager
async def events(client: httpx.AsyncClient, url: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a stream while the block lasts; leaving it hangs up."""
    async with client.stream("GET", url, headers=SSE | headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        async with contextlib.aclosing(_events(response)) as found:
            yield found


async def _events(response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
    text = ""
    async for part in response.aiter_text():
        *blocks, text = (text + part).split("\n\n")
        for block in blocks:
            frame = parse(block)
            if "event" in frame:
                yield frame


async def make(client: httpx.AsyncClient, jobs: int = 0) -> None:
    (await client.put("/v0/topics/q", json={"type": "queue"})).raise_for_status()
    if jobs:
        await produce(client, *range(jobs))


async def produce(client: httpx.AsyncClient, *data: Any) -> None:
    body = {"records": [{"data": one} for one in data]}
    (await client.post("/v0/topics/q", json=body)).raise_for_status()


async def until_in_flight(broker: Broker, count: int) -> None:
    """The server notices a closed socket in its own time; wait for that, not for a time."""
    async with asyncio.timeout(_PATIENCE_S):
        while numbers(broker)["in_flight"] != count:
            await asyncio.sleep(0.001)


async def test_fault_38_a_worker_is_kept_supplied_and_gives_back_when_it_hangs_up(
    client: httpx.AsyncClient, connect: Connect, broker: Broker
) -> None:
    await make(client, jobs=4)
    async with connect() as worker, events(worker, "/v0/topics/q/work?node=w&max=2") as jobs:
        first, second = await anext(jobs), await anext(jobs)
        assert (first["id"], second["id"], first["event"]) == ("1", "2", "job")
        lease = first["data"]["lease_id"]
        acked = await client.post("/v0/topics/q/ack", json={"node": "w", "seqs": [1], "lease_ids": [lease]})
        assert acked.json()["acked"] == 1
        assert (await anext(jobs))["id"] == "3"
    await until_in_flight(broker, 0)
    claim = (await client.post("/v0/topics/q/claim", json={"node": "v", "max": 9})).json()
    assert [(job["$seq"], job["deliveries"]) for job in claim["claimed"]] == [(2, 2), (3, 2), (4, 1)]


async def test_a_quiet_stream_beats(client: httpx.AsyncClient) -> None:
    await make(client)
    async with client.stream("GET", "/v0/topics/q/work?node=w", headers=SSE) as response:
        text = ""
        async for part in response.aiter_text():
            text += part
            if text.count(": hb\n\n") > 2:
                break
    assert text.startswith("retry: 2000\n\n: hb\n\n")


async def test_fault_32_a_watcher_that_reconnects_misses_nothing(client: httpx.AsyncClient) -> None:
    await make(client, jobs=3)
    session = (await client.post("/v0/watch", json={"topics": {"q": {}}, "limit": 1})).json()
    async with events(client, session["stream_url"]) as records:
        seen = await anext(records)
    await produce(client, "later")
    async with events(client, session["stream_url"], **{"last-event-id": seen["id"]}) as records:
        found = [await anext(records) for _ in range(3)]
    assert [frame["data"]["records"][0]["$seq"] for frame in found] == [2, 3, 4]


async def test_many_watchers_on_sockets_get_every_record_once_and_in_order(
    client: httpx.AsyncClient, connect: Connect
) -> None:
    await make(client)
    async with contextlib.AsyncExitStack() as stack:
        followers = []
        for _ in range(10):
            watcher = await stack.enter_async_context(connect())
            session = (await client.post("/v0/watch", json={"topics": {"q": {}}})).json()
            records = await stack.enter_async_context(events(watcher, session["stream_url"]))
            assert (await anext(records))["event"] == "caught-up"
            followers.append(records)
        for n in range(20):
            await produce(client, n)
        for records in followers:
            seen: list[int] = []
            while len(seen) < 20:
                seen += [one["$seq"] for one in (await anext(records))["data"]["records"]]
            assert seen == list(range(1, 21))


async def test_an_onlooker_sees_the_life_of_a_job(client: httpx.AsyncClient) -> None:
    await make(client)
    async with events(client, "/v0/topics/q/events") as rows:
        await produce(client, 1)
        await client.post("/v0/topics/q/claim", json={"node": "w"})
        await client.post("/v0/topics/q/ack", json={"node": "w", "seqs": [1]})
        assert [(await anext(rows))["event"] for _ in range(3)] == ["produced", "claimed", "acked"]


async def test_a_stream_that_ends_by_itself_ends_the_response(client: httpx.AsyncClient) -> None:
    await make(client)
    async with events(client, "/v0/topics/q/work?node=w") as jobs:
        await client.delete("/v0/topics/q")
        found = [frame async for frame in jobs]
    assert [(frame["event"], frame["data"]["code"]) for frame in found] == [("error", 404)]


async def test_fault_31_a_long_poll_whose_caller_is_gone_takes_no_job(live: str, broker: Broker) -> None:
    async with httpx.AsyncClient(base_url=live, timeout=_PATIENCE_S) as client:
        await make(client)
    async with httpx.AsyncClient(base_url=live, timeout=_PATIENCE_S) as client:
        waiting = asyncio.ensure_future(client.post("/v0/topics/q/claim", json={"node": "w", "wait_ms": 30_000}))
        async with asyncio.timeout(_PATIENCE_S):
            while not broker._serving.coordinator.waiting:
                await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with asyncio.timeout(_PATIENCE_S):
        while broker._serving.coordinator.waiting:
            await asyncio.sleep(0.001)
    await broker.produce("q", [b"1"])
    assert numbers(broker)["in_flight"] == 0


async def test_fault_36_workers_that_all_come_at_once_are_all_served(live: str, broker: Broker) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=live, timeout=_PATIENCE_S, limits=limits) as client:
        await make(client, jobs=100)

        async def work(number: int) -> int:
            async with events(client, f"/v0/topics/q/work?node=w{number}") as jobs:
                seq = int((await anext(jobs))["id"])
                await client.post("/v0/topics/q/ack", json={"node": f"w{number}", "seqs": [seq]})
                return seq

        assert sorted(await asyncio.gather(*(work(n) for n in range(50))))[-1] <= 100
    await until_in_flight(broker, 0)
    assert numbers(broker)["ready"] == 50
