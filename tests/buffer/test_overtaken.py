"""Readers that are overtaken: by a successor that fences them, or by a collector. Neither is damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tenure.buffer import Collector, Consumer, Descriptor, Ingest, Lag, entries, verify
from tenure.errors import Corrupt, Invalid, LeaseLost
from tenure.testing.simstore import Call, Hold, SimStore
from tests.buffer.ingesting import to_tuples
from tests.buffer.test_ingest import ListSink
from tests.kit.buffers import produced, quick

Look = Callable[[Consumer], Awaitable[list[Descriptor]]]
RUNS = quick(run_entries=4)


async def acknowledge(store: SimStore, seq: int) -> None:
    """As another consumer of the group does, with a collector after it."""
    async with Consumer(store, settings=RUNS, collect=False) as successor:
        await successor.next_descriptors(100)
        await successor.ack_through(seq)
    await Collector(store, settings=RUNS).run_once()


def held_once(store: SimStore, prefix: str) -> Hold:
    """Stop the first read below the prefix."""
    hold = Hold()

    def hook(call: Call) -> Hold | None:
        reading = call.kind == "get" and call.key.startswith(prefix) and not hold.reached.is_set()
        return hold if reading else None

    store.hook = hook
    return hold


async def test_a_consumer_that_is_fenced_amid_a_fetch_hears_so_and_not_of_damage(sim: SimStore):
    """Naive: the batch is gone, "restore it, or quarantine it"; what it should do is stop."""
    await produced(sim, [b"a"], [b"b"], [b"c"])
    async with Consumer(sim, settings=RUNS, collect=False) as consumer:
        hold = held_once(sim, "data/")
        reading = asyncio.create_task(consumer.next_batch())
        await hold.reached.wait()
        await acknowledge(sim, 2)
        hold.release()
        with pytest.raises(LeaseLost):
            await reading


async def test_a_batch_that_is_gone_under_a_consumer_that_is_not_fenced_is_damage(sim: SimStore):
    await produced(sim, [b"a"])
    async with Consumer(sim, settings=RUNS, collect=False) as consumer:
        for key in [key for key in sim.objects if key.startswith("data/")]:
            del sim.objects[key]
        with pytest.raises(Corrupt, match="quarantine"):
            await consumer.next_batch()


@pytest.mark.parametrize("look", [lambda consumer: consumer.next_descriptors(9), lambda c: c.descriptors(0, 9)])
async def test_a_consumer_that_is_fenced_amid_a_run_hears_so_and_not_of_damage(sim: SimStore, look: Look):
    await produced(sim, *([b"%d" % number] for number in range(12)), settings=RUNS)
    async with Consumer(sim, settings=RUNS, collect=False) as consumer:
        hold = held_once(sim, "manifest/run-")
        reading = asyncio.ensure_future(look(consumer))
        await hold.reached.wait()
        await acknowledge(sim, 11)
        hold.release()
        with pytest.raises(LeaseLost):
            await reading


async def test_a_range_that_is_trimmed_while_it_is_looked_up_is_gone_and_not_damaged(sim: SimStore):
    """A backfill reads behind its group: the group's own frontier does not keep what it wants."""
    await produced(sim, *([b"%d" % number] for number in range(12)), settings=RUNS)
    async with Consumer(sim, 11, settings=RUNS, collect=False) as consumer:
        hold = held_once(sim, "manifest/run-")
        reading = asyncio.create_task(consumer.descriptors(0, 10))
        await hold.reached.wait()
        await Collector(sim, settings=RUNS).run_once()
        hold.release()
        with pytest.raises(Invalid) as caught:
            await reading
        assert caught.value.code == "range_gone"


async def test_an_ingest_that_is_fenced_amid_a_fetch_hears_so_and_not_of_damage(sim: SimStore):
    await produced(sim, [b"a"], [b"b"], [b"c"])
    async with Consumer(sim, settings=RUNS, collect=False) as consumer:
        hold = held_once(sim, "data/")
        running = asyncio.create_task(Ingest(consumer, to_tuples, ListSink()).catch_up())
        await hold.reached.wait()
        await acknowledge(sim, 2)
        hold.release()
        with pytest.raises(LeaseLost):
            await running


async def test_the_lag_of_a_fenced_consumer_counts_from_what_is_left(sim: SimStore):
    """Naive: StopIteration, out of a property that a metrics page reads."""
    await produced(sim, *([b"%d" % number] for number in range(12)), settings=RUNS)
    async with Consumer(sim, settings=RUNS, collect=False) as consumer:
        await acknowledge(sim, 9)
        with pytest.raises(LeaseLost):
            await consumer.next_batch()
        assert consumer.lag.batches == 2
        assert consumer.metrics.lag_batches == 2
        await acknowledge(sim, 11)
        with pytest.raises(LeaseLost):
            await consumer.next_batch()
        assert consumer.lag == Lag(0, 0)


async def test_entries_pass_over_what_is_trimmed_while_they_are_listed(sim: SimStore):
    """Naive: the next run is gone, and so "the manifest is damaged", on a buffer that is only at work."""
    await produced(sim, *([b"%d" % number] for number in range(20)), settings=RUNS)
    listing = entries(sim, settings=RUNS)
    first = await anext(listing)
    await acknowledge(sim, 17)
    assert [first.seq, *[each.seq async for each in listing]] == [0, 1, 2, 3, 18, 19]


async def test_verify_finds_no_gap_where_a_collector_was_faster(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(20)), settings=RUNS)
    hold = held_once(sim, "manifest/run-00000000000000000004")
    looking = asyncio.create_task(found_by_verify(sim))
    await hold.reached.wait()
    await acknowledge(sim, 17)
    hold.release()
    assert await looking == []


async def found_by_verify(store: SimStore) -> list[str]:
    return [each.message async for each in verify(store, settings=RUNS) if each.harmful]


async def test_a_run_that_is_missing_for_good_is_damage(sim: SimStore):
    await produced(sim, *([b"%d" % number] for number in range(12)), settings=RUNS)
    for key in [key for key in sim.objects if key.startswith("manifest/run-")]:
        del sim.objects[key]
    with pytest.raises(Corrupt, match="damaged"):
        await anext(entries(sim, settings=RUNS))
