"""What every store must do, and what a buffer does on every store."""

from __future__ import annotations

import asyncio
import time

import pytest

from tenure.buffer import (
    Collector,
    Consumer,
    Kept,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    Producer,
    StoreRefused,
    dump,
    entries,
    stat,
    verify,
)
from tenure.errors import Invalid, LeaseLost, NotFound
from tests.kit.buffers import QUICK, consumed, folded, produced, quick

# The store


async def test_a_key_is_created_once(store: ObjectStore):
    await store.put_new("a/b", b"first")
    with pytest.raises(ObjectExists):
        await store.put_new("a/b", b"second")
    assert await store.get("a/b", limit_bytes=100) == b"first"


async def test_of_many_that_create_a_key_at_once_one_wins(store: ObjectStore):
    async def attempt(number: int) -> int | None:
        # A server that is unsure (409, 503) has not said who won: repeat until it knows.
        for _ in range(50):
            try:
                await store.put_new("contested", b"%d" % number)
            except ObjectExists:
                return None
            except OutcomeUnknown:
                continue
            return number
        raise AssertionError("the store never knew")

    winners = [number for number in await asyncio.gather(*map(attempt, range(16))) if number is not None]
    assert len(winners) <= 1
    found = int(await store.get("contested", limit_bytes=100))
    assert winners in ([], [found])


async def test_put_replaces(store: ObjectStore):
    await store.put("a", b"first")
    await store.put("a", b"second")
    assert await store.get("a", limit_bytes=100) == b"second"


async def test_what_is_not_there_is_missing(store: ObjectStore):
    with pytest.raises(ObjectMissing):
        await store.get("a", limit_bytes=1)
    with pytest.raises(ObjectMissing):
        await store.head("a")
    await store.delete(["a", "b"])


async def test_a_part_of_an_object_can_be_read(store: ObjectStore):
    await store.put_new("a", b"0123456789")
    assert await store.get("a", start=2, length=3, limit_bytes=100) == b"234"
    assert (await store.head("a")).bytes == 10


async def test_an_object_beyond_the_limit_is_not_read(store: ObjectStore):
    await store.put_new("a", b"0123456789")
    with pytest.raises(Invalid, match="bytes"):
        await store.get("a", limit_bytes=9)


async def test_a_listing_is_in_order_and_starts_behind_a_key(store: ObjectStore):
    for key in ("m/run-2", "m/1", "m/run-1", "m/checkpoint-1", "n/1", "z"):
        await store.put_new(key, b"x")
    assert [info.key async for info in store.list("m/")] == ["m/1", "m/checkpoint-1", "m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("m/run-")] == ["m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("m/", "m/checkpoint-1")] == ["m/run-1", "m/run-2"]
    assert [info.key async for info in store.list("")] == ["m/1", "m/checkpoint-1", "m/run-1", "m/run-2", "n/1", "z"]


async def test_a_copy_stands_beside_its_source_and_replaces_what_was_there(store: ObjectStore):
    await store.put_new("staged/day=2026-11-15/a b%3A", b"rows")
    for _ in range(2):
        await store.copy("staged/day=2026-11-15/a b%3A", "table/day=2026-11-15/c b%3A")
    await store.put_new("other", b"other")
    await store.copy("other", "table/day=2026-11-15/c b%3A")
    await store.delete(["other"])
    assert await store.get("table/day=2026-11-15/c b%3A", limit_bytes=100) == b"other"
    assert await store.get("staged/day=2026-11-15/a b%3A", limit_bytes=100) == b"rows"
    assert [info.key async for info in store.list("table/")] == ["table/day=2026-11-15/c b%3A"]
    with pytest.raises(ObjectMissing):
        await store.copy("other", "elsewhere")


async def test_many_objects_are_deleted_and_listed_page_by_page(store: ObjectStore):
    keys = [f"d/{number:04}" for number in range(1_100)]
    for first in range(0, 1_100, 50):
        await asyncio.gather(*(store.put_new(key, b"") for key in keys[first : first + 50]))
    assert [info.key async for info in store.list("d/")] == keys
    await store.delete(keys[:-1])
    assert [info.key async for info in store.list("d/")] == keys[-1:]


async def test_the_store_has_a_clock_and_stamps_its_objects(store: ObjectStore):
    await store.put_new("a", b"x")
    now_ms = await store.now_ms()
    assert abs(now_ms - time.time() * 1000) < 60_000
    assert abs(now_ms - (await store.head("a")).modified_ms) < 60_000
    assert [info.key async for info in store.list("")] == ["a"]


# The buffer


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
