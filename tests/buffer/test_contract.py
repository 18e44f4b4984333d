"""The same life of a buffer on every kind of store."""

from __future__ import annotations

import asyncio

import pytest

from tenure.buffer import (
    Collector,
    Consumer,
    Kept,
    ObjectStore,
    Producer,
    StoreRefused,
    dump,
    entries,
    stat,
    verify,
)
from tenure.errors import LeaseLost, NotFound
from tests.kit.buffers import QUICK, consumed, folded, produced, quick


async def test_what_is_produced_is_consumed_in_order(store: ObjectStore):
    async with Producer(store, settings=QUICK) as producer:
        handles = [await producer.produce([b"%d" % n, b""], b"call %d" % n) for n in range(20)]
        positions = [await handle.durable() for handle in handles]
    assert [position.seq for position in positions] == sorted(position.seq for position in positions)
    async with Consumer(store, settings=QUICK) as consumer:
        found, ranges, seq = list[bytes](), list[bytes](), 0
        while (batch := await consumer.next_batch()) is not None:
            assert batch.seq == seq
            found += batch.entries
            ranges += [range_.metadata for range_ in batch.ranges]
            await consumer.ack(batch.seq)
            seq += 1
    assert found == [part for n in range(20) for part in (b"%d" % n, b"")]
    assert ranges == [b"call %d" % n for n in range(20)]


async def test_many_producers_write_side_by_side(store: ObjectStore):
    async def write(name: int) -> None:
        async with Producer(store, settings=QUICK) as producer:
            for number in range(10):
                await (await producer.produce([b"%d:%d" % (name, number)])).durable()

    await asyncio.gather(*map(write, range(5)))
    found = await consumed(store)
    assert len(found) == 50
    for name in range(5):
        assert [e for e in found if e.startswith(b"%d:" % name)] == [b"%d:%d" % (name, n) for n in range(10)]


async def test_a_restarted_consumer_goes_on_at_its_durable_frontier(store: ObjectStore):
    await produced(store, [b"a"], [b"b"], [b"c"])
    async with Consumer(store, settings=QUICK) as consumer:
        assert (await consumer.next_batch()).entries == [b"a"]  # type: ignore[union-attr]
        await consumer.ack(0)
    async with Consumer(store, settings=QUICK) as consumer:
        assert consumer.last_acked == 0
        assert [d.seq for d in await consumer.next_descriptors(10)] == [1, 2]


async def test_read_ahead_fetches_side_by_side_and_acks_in_one_write(store: ObjectStore):
    await produced(store, *([b"%d" % n] for n in range(8)))
    async with Consumer(store, settings=QUICK) as consumer:
        descriptors = await consumer.next_descriptors(100)
        handle = consumer.fetch_handle()
        batches = await asyncio.gather(*(handle.fetch(descriptor) for descriptor in descriptors))
        assert [batch.entries for batch in batches] == [[b"%d" % n] for n in range(8)]
        assert await consumer.next_descriptors(1) == []
        await consumer.ack_through(7)
    assert (await folded(store)).groups["default"].next_seq == 8


async def test_a_second_consumer_fences_the_first(store: ObjectStore):
    await produced(store, [b"a"], [b"b"])
    first = await Consumer.open(store, settings=QUICK, collect=False)
    assert await first.next_batch() is not None
    async with Consumer(store, settings=QUICK, collect=False) as second:
        assert second.epoch == first.epoch + 1
        assert await first.next_batch() is not None  # of the manifest as it read it before
        for refused in (first.next_batch(), first.next_descriptors(1), first.ack_through(0)):
            with pytest.raises(LeaseLost, match="fenced"):
                await refused
        assert (await second.next_batch()).seq == 0  # type: ignore[union-attr]
    await first.close()


async def test_groups_have_frontiers_of_their_own(store: ObjectStore):
    await produced(store, [b"a"], [b"b"])
    async with Consumer(store, group="one", settings=QUICK) as one, Consumer(store, group="two", settings=QUICK) as two:
        await one.next_descriptors(2)
        await one.ack_through(1)
        assert (await two.next_batch()).seq == 0  # type: ignore[union-attr]
    state = await folded(store)
    assert {name: group.next_seq for name, group in state.groups.items()} == {"one": 2, "two": 0}


async def test_the_collector_deletes_what_every_group_has_acknowledged(store: ObjectStore):
    settings = quick(initial_groups=("one", "two"))
    await produced(store, [b"a"], [b"b"], [b"c"], settings=settings)
    async with Consumer(store, group="one", settings=settings, collect=False) as consumer:
        await consumer.next_descriptors(3)
        await consumer.ack_through(2)
    async with Consumer(store, group="two", settings=settings, collect=False) as consumer:
        await consumer.next_descriptors(3)
        await consumer.ack_through(0)
    collector = Collector(store, settings=settings)
    assert (await collector.run_once(dry_run=True)).objects == 1
    assert (await collector.run_once()).objects == 1
    await collector.close()
    assert len([info async for info in store.list("data/")]) == 2
    assert await consumed(store) == [b"b", b"c"]


async def test_a_buffer_can_be_looked_at_without_taking_part(store: ObjectStore):
    await produced(store, [b"a", b"b"], [b"c"])
    figures = await stat(store)
    assert (figures.next_seq, figures.entries_total, figures.groups) == (2, 3, [])
    assert figures.kept == [Kept("no_group", 2)]
    assert [d.seq async for d in entries(store)] == [0, 1]
    assert [d.entries async for d in entries(store, 1)] == [1]
    assert (await dump(store))["tail"][1]["seq"] == 1
    assert [finding async for finding in verify(store)] == []


async def test_a_consumer_of_nothing_says_so(store: ObjectStore):
    with pytest.raises(NotFound, match="no buffer"):
        await Consumer.open(store, settings=QUICK)
    async with Consumer(store, settings=QUICK, create=True) as consumer:
        assert await consumer.next_batch(wait_ms=20) is None


async def test_a_bucket_that_is_not_there_is_refused_in_one_line(s3_server: str):
    """Naive: it is tried again and again, and answered with a page of the client's insides."""
    with pytest.raises(StoreRefused) as caught:
        await stat(s3_server.format(name="x").replace("s3://tests", "s3://no-such-bucket"))
    assert "bucket" in str(caught.value)
    assert "Debug source" not in str(caught.value)
