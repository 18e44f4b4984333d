"""`next_batch` on a backlog: one read of the manifest for many batches, and what may happen to them meanwhile."""

from __future__ import annotations

import random

import pytest

from tenure.buffer import Collector, Consumer, Producer, quarantine
from tenure.buffer.reading.window import WINDOW_BATCHES
from tenure.errors import Corrupt, LeaseLost
from tenure.testing import ManualClock
from tenure.testing.simstore import SimStore
from tests.buffer.virtual_time import in_virtual_time
from tests.chain.worlds.clock import MachineClock
from tests.kit.buffers import QUICK, folded, produced, quick

KEPT = quick(grace_ms=0)


async def backlog(sim: SimStore, count: int) -> None:
    await produced(sim, *([b"%d" % number] for number in range(count)))


async def read(consumer: Consumer, count: int) -> list[int]:
    """Read so many batches, acknowledging each, and return their sequences."""
    found = list[int]()
    for _ in range(count):
        batch = await consumer.next_batch()
        assert batch is not None
        found.append(batch.seq)
        await consumer.ack(batch.seq)
    return found


def looks(sim: SimStore) -> int:
    """How often the manifest was read up to its end: a get that misses, and a head for the mark."""
    return sim.count("head", "manifest/freed")


@pytest.mark.parametrize(
    ("size", "count"),
    [
        pytest.param(100_000, 600, id="100 kB"),
        pytest.param(1_000_000, 150, id="1 MB"),
        pytest.param(16_000_000, 100, id="16 MB", marks=pytest.mark.full),
    ],
)
def test_a_batch_of_a_backlog_takes_at_most_1_3_requests_read_and_acknowledged(size: int, count: int):
    """With default settings and collection, after the opening: 3.2 requests when each batch read the manifest."""

    async def main(clock: MachineClock) -> float:
        sim, data = SimStore(latency_ms=20), random.Random(1).randbytes(size)
        async with Producer(sim, clock=clock) as producer:
            for _ in range(count):
                await producer.produce([data])
                await producer.flush()
        async with Consumer(sim, clock=clock) as consumer:
            before = sum(consumer.metrics.requests.values())
            assert await read(consumer, count) == list(range(count))
            await consumer.flush()
            return (sum(consumer.metrics.requests.values()) - before) / count

    assert 1 < in_virtual_time(main) <= 1.3


async def test_the_manifest_is_read_once_for_a_window_of_batches(sim: SimStore):
    count = 2 * WINDOW_BATCHES + 50
    await backlog(sim, count)
    async with Consumer(sim, settings=quick(ack_every=1_000), collect=False) as consumer:
        before = looks(sim)
        await read(consumer, count)
        assert looks(sim) - before == 3
        await produced(sim, [b"new"])
        assert await read(consumer, 1) == [count], "a window that is used up hides nothing"


async def test_a_fenced_consumer_hears_so_with_its_durable_ack_and_moves_nothing(sim: SimStore):
    await backlog(sim, 10)
    async with Consumer(sim, settings=quick(ack_every=4), collect=False) as consumer:
        await read(consumer, 2)
        async with Consumer(sim, settings=QUICK, collect=False) as successor:
            await read(consumer, 1)  # what the window holds is read on, and acknowledged in memory only
            with pytest.raises(LeaseLost):
                await read(consumer, 1)
            assert (await folded(sim)).groups["default"].next_seq == 0
            assert await read(successor, 10) == list(range(10))
        with pytest.raises(LeaseLost):
            await consumer.ack_through(3)


async def test_a_consumer_that_stood_still_looks_before_it_reads_on(sim: SimStore):
    """A process that was stopped for an hour must not go through what its successor has done meanwhile."""
    clock = ManualClock()
    await backlog(sim, 10)
    async with Consumer(sim, settings=QUICK, clock=clock, collect=False) as consumer:
        await read(consumer, 1)
        async with Consumer(sim, settings=QUICK, collect=False):
            clock.advance(10_000)
            with pytest.raises(LeaseLost):
                await consumer.next_batch()


async def test_a_batch_that_was_collected_out_of_the_window_is_a_lost_lease(sim: SimStore):
    await backlog(sim, 10)
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await read(consumer, 1)
        async with Consumer(sim, settings=KEPT, collect=False) as successor:
            await read(successor, 10)
        sim.advance(1)
        await Collector(sim, settings=KEPT).run_once()
        before = looks(sim)
        with pytest.raises(LeaseLost):
            await consumer.next_batch()
        assert looks(sim) - before == 1, "the manifest is read once, and says so"


async def test_a_batch_of_the_window_that_is_lost_is_damage_until_it_is_restored_or_given_up(sim: SimStore):
    await backlog(sim, 10)
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        await read(consumer, 2)
        third, fourth = [key for key in sim.objects if key.startswith("data/")][2:4]
        lost = {key: sim.objects.pop(key) for key in (third, fourth)}
        for _ in range(2):
            with pytest.raises(Corrupt, match="quarantine"):
                await consumer.next_batch()
        sim.objects[third] = lost[third]
        assert await read(consumer, 1) == [2]
        with pytest.raises(Corrupt):
            await consumer.next_batch()
        await consumer.quarantine(3, "lost")
        assert await read(consumer, 6) == [4, 5, 6, 7, 8, 9]


async def test_an_operator_who_gives_up_the_next_batch_ends_the_consumer_and_not_its_successor(sim: SimStore):
    await backlog(sim, 4)
    async with Consumer(sim, settings=quick(ack_every=1), collect=False) as consumer:
        await read(consumer, 1)
        await quarantine(sim, 1, reason="by hand", settings=QUICK)
        assert await consumer.next_batch() is not None
        with pytest.raises(LeaseLost):
            await consumer.ack(1)
        async with Consumer(sim, settings=QUICK, collect=False) as successor:
            assert await read(successor, 2) == [2, 3]


async def test_batches_and_descriptors_in_turns_are_handed_out_once(sim: SimStore):
    await backlog(sim, 12)
    async with Consumer(sim, settings=QUICK, collect=False) as consumer:
        found = await read(consumer, 2)
        for descriptor in await consumer.next_descriptors(3):
            found.append(descriptor.seq)
            await consumer.ack(descriptor.seq)
        found += await read(consumer, 2)
        found += [descriptor.seq for descriptor in await consumer.descriptors(7, 10)]
        await consumer.ack_through(9)
        found += await read(consumer, 2)
    assert found == list(range(12))
