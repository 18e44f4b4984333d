"""Streams of several servers: they go on at the new leader, also where the old one was stopped with its socket open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tenure import Client, Overloaded
from tenure.client import ClientSettings, Lifecycle, Records
from tests.client.both_clients import Both, make_client
from tests.kit.members import Member, members, until
from tests.kit.server import Running

QUICK: dict[str, Any] = {
    **{"backoff_min_ms": 1, "seek_max_ms": 2, "reconnect_min_ms": 1, "reconnect_max_ms": 20},
    **{"look_ms": 100, "look_again_ms": 20, "stream_look_ms": 50, "stream_idle_ms": 600_000},
}


@pytest.fixture
def pair(real: Running) -> Iterator[tuple[Member, Member]]:
    """Two members before one real server; the first leads."""
    with members(2, behind=real) as (first, second):
        second.follows(first.leads(1))
        yield first, second


def several(kind: str, *servers: Member) -> Both:
    url = ",".join(server.url for server in servers)
    return make_client(kind, url, node="me", settings=ClientSettings(**QUICK))


async def next_seqs(feed: Both) -> list[int]:
    """The seqs of the next records or events."""
    while True:
        event = await feed.next()
        if isinstance(event, Records):
            return [record.seq for record in event.records]
        if isinstance(event, Lifecycle):
            return event.runs[:1]


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("stream", ["watch", "events"])
async def test_a_stream_goes_on_at_the_new_leader_without_a_gap_or_a_repeat(
    kind: str, real: Running, pair: tuple[Member, Member], name: str, stream: str, ending: str
) -> None:
    first, second = pair
    with Client(real.url) as beside:
        beside.put_topic(name, type="queue")
        async with several(kind, first, second) as client, Both(getattr(client.inner, stream)(name)) as feed:
            coming = asyncio.ensure_future(next_seqs(feed))
            await until(lambda: any(f"/{stream}" in asked.path for asked in first.asked))
            beside.produce(name, [1])
            if stream == "events":  # from now on: an event that came before the stream opened is not in it
                while not coming.done():
                    await asyncio.sleep(0.01)
                    beside.produce(name, ["more"])
            before = await coming
            head = beside.topic(name).head_seq
            while before[-1] < head:
                before += await next_seqs(feed)
            getattr(first, ending)()
            coming = asyncio.ensure_future(next_seqs(feed))
            beside.produce(name, [2])
            second.leads(2)
            assert await asyncio.wait_for(coming, 60) == [head + 1]


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_work_stream_is_reported_as_broken_and_the_next_one_is_at_the_new_leader(
    kind: str, real: Running, pair: tuple[Member, Member], name: str, ending: str
) -> None:
    first, second = pair
    with Client(real.url) as beside:
        beside.put_topic(name, type="queue")
        beside.produce(name, [1])
        async with several(kind, first, second) as client:
            async with Both(client.inner.work(name, max_count=1)) as work:
                while not await work.next():
                    pass
                getattr(first, ending)()
                second.leads(2)
                with pytest.raises(Overloaded) as caught:
                    await asyncio.wait_for(work.drain(), 60)
                assert caught.value.code == "disconnected"
            if ending == "stop":
                assert (await client.ack(name, [1])).count == 1, "its lease was not lost"
                first.kill()  # else the real server feeds the stream that nobody reads
            async with Both(client.inner.work(name, max_count=1)) as work:
                beside.produce(name, [2])
                while not await work.next():
                    pass


async def test_a_silent_stream_of_a_leader_that_lives_is_left_alone(
    kind: str, real: Running, pair: tuple[Member, Member], name: str
) -> None:
    first, second = pair
    with Client(real.url) as beside:
        beside.put_topic(name, type="queue")
        async with several(kind, first, second) as client, Both(client.inner.watch(name)) as feed:
            coming = asyncio.ensure_future(next_seqs(feed))
            await until(lambda: second.looks >= 3)
            beside.produce(name, [1])
            assert await coming == [1]
    assert second.asked == []
