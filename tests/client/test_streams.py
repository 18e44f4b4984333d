"""Work, watch and events: over a real server, and over lines that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tenure import AsyncClient, Conflict, Invalid, NotFound, Overloaded, Record
from tenure.client import CaughtUp, ClientSettings, Gap, Job, Records, Tombstone, TopicDeleted
from tenure.testing import memory_broker
from tenure.testing.wire import AppWire
from tests.client.both_clients import Both, make_client
from tests.kit.http_proxy import Proxy, proxy_to
from tests.kit.server import serving

QUICK = ClientSettings(reconnect_min_ms=1, reconnect_max_ms=20, backoff_min_ms=1, backoff_max_ms=20)


@pytest.fixture
async def shaky(kind: str, proxy: Proxy) -> AsyncIterator[Both]:
    async with make_client(kind, proxy.url, node="me", settings=QUICK) as made:
        yield made


async def some(feed: Both) -> list[object]:
    """The next list that is no heartbeat."""
    while not (jobs := await feed.next()):
        pass
    found: list[object] = jobs
    return found


async def records_until(feed: Both, head_seq: int) -> tuple[list[int], list[object]]:
    """The seqs that come until the topic is caught up with, and whatever else comes."""
    seqs: list[int] = []
    others: list[object] = []
    while True:
        event = await feed.next()
        if isinstance(event, Records):
            seqs += [record.seq for record in event.records]
        elif isinstance(event, CaughtUp):
            if event.head_seq >= head_seq:
                return seqs, others
        else:
            others.append(event)
        if seqs and seqs[-1] >= head_seq:
            return seqs, others


async def test_jobs_are_pushed_in_lists_and_no_more_than_asked_for(client: Both, name: str) -> None:
    await client.put_topic(name, type="queue")
    odd = b'["\\ud800",\n1]'
    await client.produce(name, [Record(data=odd, tag="x", meta=b'{"m":1}'), *range(9)])
    async with Both(client.inner.work(name, max_count=5, lease_ms=60_000)) as work:
        jobs: list[Job] = []
        while len(jobs) < 5:
            jobs += await work.next()
        assert [job.seq for job in jobs] == [1, 2, 3, 4, 5]
        assert (bytes(jobs[0].data), jobs[0].tag, bytes(jobs[0].meta or b"")) == (odd, "x", b'{"m":1}')
        assert (await client.topic(name)).queue.in_flight == 5
        await client.ack(name, [1, 2])
        more = await some(work)
        assert [job.seq for job in more] == [6, 7]  # type: ignore[attr-defined]
    while (await client.topic(name)).queue.in_flight:
        pass
    assert (await client.topic(name)).queue.ready == 8, "what was not settled is given back when the stream ends"


async def test_what_was_put_comes_back_to_the_byte_from_every_call(client: Both, name: str) -> None:
    texts = [b'{"a":\r\n 1}', b"[1,\r2,\n\n3]", b'"x\\ud800y"', b'{"a": "b\\r\\n"}', b'["\\ud800",\r1]']
    await client.put_topic(name, type="queue")
    await client.produce(name, [Record(data=text, meta=b'{"m":\r\n1}') for text in texts])
    diff, jobs, records = (await client.diff(name)).records, list[Any](), list[Any]()
    async with Both(client.inner.work(name, max_count=9)) as work:
        while len(jobs) < len(texts):
            jobs += await work.next()
    async with Both(client.inner.watch(name)) as watch:
        while len(records) < len(texts):
            records += (await watch.next()).records
    for found in (diff, jobs, records):
        assert [bytes(one.data) for one in found] == texts
        assert {bytes(one.meta) for one in found} == {b'{"m":\r\n1}'}


async def test_a_work_stream_that_is_refused_says_why(client: Both, name: str) -> None:
    with pytest.raises(NotFound):
        await Both(client.inner.work(name)).next()
    await client.put_topic(name)
    with pytest.raises(Conflict):
        await Both(client.inner.work(name)).next()
    with pytest.raises(Invalid):
        client.inner.work(name, node="")


async def test_a_queue_that_is_deleted_ends_its_work_stream(client: Both, name: str) -> None:
    await client.put_topic(name, type="queue")
    async with Both(client.inner.work(name)) as work:
        assert await work.next() == []
        await client.delete_topic(name)
        with pytest.raises(NotFound):
            await work.drain()


async def test_a_watch_goes_on_where_the_line_broke(shaky: Both, proxy: Proxy, name: str) -> None:
    """Fault 32: no gap and no repeat."""
    await shaky.produce(name, range(10))
    async with Both(shaky.inner.watch(name, limit=3)) as feed:
        seqs: list[int] = []
        for head_seq in range(10, 60, 10):
            more, others = await records_until(feed, head_seq)
            assert others == []
            seqs += more
            await shaky.produce(name, range(10))
            proxy.cut()
        assert seqs == list(range(1, 51))


async def test_a_watch_outlives_the_server(kind: str, tmp_path: Path, name: str) -> None:
    """Fault 32: the session is gone with the old process; what was read is known here."""
    data = tmp_path / "data"
    with proxy_to(1) as proxy, serving(data) as server:
        proxy.target_port = int(server.url.rpartition(":")[2])
        async with make_client(kind, proxy.url, settings=QUICK) as client:
            await client.produce(name, range(5))
            await client.produce(f"{name}-new", range(5))
            feed = Both(client.inner.watch({name: 2, f"{name}-new": None}))
            assert [r.seq for r in (await feed.next()).records] == [3, 4, 5]
            for _ in range(2):
                assert isinstance(await feed.next(), CaughtUp)
            server.stop()
            with serving(data) as again:
                proxy.target_port = int(again.url.rpartition(":")[2])
                proxy.cut()
                await client.produce(name, ["more"])
                await client.produce(f"{name}-new", ["more"])
                seen: set[tuple[str, int]] = set()
                while len(seen) < 2:
                    event = await feed.next()
                    if isinstance(event, Records):
                        seen |= {(event.topic, record.seq) for record in event.records}
                assert seen == {(name, 6), (f"{name}-new", 6)}
                await feed.close()
                proxy.refuse()
                proxy.accept()


async def test_what_a_watch_missed_is_a_tombstone(shaky: Both, client: Both, proxy: Proxy, name: str) -> None:
    """Fault 32."""
    await shaky.put_topic(name, cap_records=3)
    await shaky.produce(name, range(2))
    async with Both(shaky.inner.watch(name)) as feed:
        assert (await records_until(feed, 2))[0] == [1, 2]
        proxy.refuse()
        await client.produce(name, range(8))
        proxy.accept()
        seqs, others = await records_until(feed, 10)
        assert seqs == [8, 9, 10]
        gap = next(other for other in others if isinstance(other, Tombstone))
        assert (gap.topic, gap.gap_from, gap.gap_to, gap.reason) == (name, 3, 7, "cap")


async def test_a_watch_ends_when_every_topic_is_deleted(client: Both, name: str) -> None:
    await client.produce(name, [1])
    async with Both(client.inner.watch([name])) as feed:
        await records_until(feed, 1)
        await client.delete_topic(name)
        while not isinstance(event := await feed.next(), TopicDeleted):
            pass
        assert event.topic == name
        with pytest.raises(StopAsyncIteration):
            await feed.next()


async def test_a_topic_that_is_deleted_while_a_watch_is_away_is_told(kind: str, tmp_path: Path, name: str) -> None:
    """Fault 32."""
    data, gone = tmp_path / "data", f"{name}-gone"
    with proxy_to(1) as proxy, serving(data) as server:
        proxy.target_port = int(server.url.rpartition(":")[2])
        async with make_client(kind, proxy.url, settings=QUICK) as client, make_client(kind, server.url) as direct:
            await direct.produce(name, [1])
            await direct.produce(gone, [1])
            async with Both(client.inner.watch([name, gone])) as feed:
                for _ in range(4):
                    await feed.next()
                proxy.refuse()
                await direct.delete_topic(gone)
                await direct.produce(name, [2])
                server.stop()
                with serving(data) as again:
                    proxy.target_port = int(again.url.rpartition(":")[2])
                    proxy.accept()
                    found = [await feed.next(), await feed.next()]
                    assert [type(event) for event in found] == [TopicDeleted, Records]
                    assert (found[0].topic, found[1].records[0].seq) == (gone, 2)


async def test_a_watch_of_an_unknown_topic_says_so(client: Both, name: str) -> None:
    with pytest.raises(NotFound):
        await Both(client.inner.watch(name)).next()
    unfit: list[Any] = [[], {}, "no/name", {"t": -1}]
    for bad in unfit:
        with pytest.raises(Invalid):
            client.inner.watch(bad)


async def test_events_tell_the_life_of_jobs_and_resume(shaky: Both, proxy: Proxy, name: str) -> None:
    """Fault 32."""
    await shaky.put_topic(name, type="queue")
    inner = shaky.inner.events(name)
    async with Both(inner) as feed:
        first = feed.next()
        coming = asyncio.ensure_future(first)
        while not coming.done():
            await shaky.produce(name, [1])
            await asyncio.wait([coming], timeout=0.02)
        assert (await coming).event == "produced"
        await shaky.claim(name)
        while (row := await feed.next()).event != "claimed":
            pass
        assert (row.runs, row.node) == ([1, 1], "me")
        proxy.cut()
        await shaky.ack(name, [1])
        assert (await feed.next()).event == "acked"
        last_id = inner.source.last_event_id
    await shaky.produce(name, [2])
    async with Both(shaky.inner.events(name, last_event_id=last_id)) as feed:
        assert (await feed.next()).event == "produced"


async def test_events_that_were_missed_are_a_gap() -> None:
    """Fault 32: an id of another life of the server."""
    async with memory_broker() as broker, AsyncClient(wire=AppWire(broker)) as client:
        await client.put_topic("q", type="queue")
        async with client.events("q", last_event_id="feedbeef-7") as feed:
            assert await anext(feed) == Gap("q", "restarted")


async def test_a_line_that_broke_before_anything_came_is_a_gap_too() -> None:
    """Fault 32."""
    async with memory_broker() as broker:
        wire = AppWire(broker)
        async with AsyncClient(wire=wire, settings=QUICK) as client:
            await client.put_topic("q", type="queue")
            async with client.events("q") as feed:
                coming = asyncio.ensure_future(anext(feed))
                while not wire._streams:
                    await asyncio.sleep(0)
                wire.down = True
                wire.down = False
                assert await coming == Gap("q", "disconnected")


async def test_a_stream_that_cannot_come_back_gives_up_in_a_stated_time(kind: str, proxy: Proxy, name: str) -> None:
    settings = ClientSettings(reconnect_min_ms=1, reconnect_max_ms=5, reconnect_for_ms=50, attempts_max=1)
    async with make_client(kind, proxy.url, settings=settings) as client:
        await client.produce(name, [1])
        async with Both(client.inner.watch(name)) as feed:
            await records_until(feed, 1)
            proxy.refuse()
            with pytest.raises(Overloaded):
                await feed.drain()
            proxy.accept()
