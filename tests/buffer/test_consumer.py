"""The consumer's own promises: waiting, lag, the blocking face."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tenure.buffer import Consumer, Producer
from tenure.buffer.blocking import Consumer as BlockingConsumer
from tenure.buffer.blocking import Producer as BlockingProducer
from tenure.errors import Closed, Invalid
from tenure.testing import ManualClock
from tenure.testing.simstore import SimStore
from tests.kit.buffers import QUICK, folded, produced, quick


async def test_a_waiting_consumer_gets_what_is_produced_meanwhile(sim: SimStore):
    async with Consumer(sim, settings=QUICK, create=True) as consumer:
        waiting = asyncio.create_task(consumer.next_batch(wait_ms=60_000))
        await asyncio.sleep(0)
        await produced(sim, [b"a"])
        batch = await asyncio.wait_for(waiting, 20)
        assert batch is not None
        assert batch.entries == [b"a"]
        await consumer.ack(0)  # a waiting read does not keep acks waiting


async def test_batches_come_one_after_another(sim: SimStore):
    await produced(sim, [b"a"], [b"b"], [b"c"])
    seen: list[bytes] = []
    async with Consumer(sim, settings=QUICK) as consumer:
        async for batch in consumer.batches():
            seen += batch.entries
            await consumer.ack(batch.seq)
            if len(seen) == 3:
                break
    assert (seen, (await folded(sim)).groups["default"].next_seq) == ([b"a", b"b", b"c"], 3)


async def test_acks_become_durable_by_the_hundred_and_on_flush(sim: SimStore):
    await produced(sim, *([b"x"] for _ in range(105)))
    async with Consumer(sim, settings=quick(ack_every=100), collect=False) as consumer:
        await consumer.next_descriptors(105)
        frontiers = []
        for seq in range(105):
            await consumer.ack(seq)
            if seq in (98, 99, 104):
                frontiers.append((await folded(sim)).groups["default"].next_seq)
        assert frontiers == [0, 100, 100]
        await consumer.flush()
        assert (await folded(sim)).groups["default"].next_seq == 105
        assert consumer.metrics.acks == 105


async def test_lag_is_told_in_batches_and_in_time(sim: SimStore):
    clock = ManualClock()
    async with Producer(sim, settings=QUICK, clock=clock) as producer:
        await (await producer.produce([b"a"])).durable()
        clock.advance(5_000)
        await (await producer.produce([b"b"])).durable()
    async with Consumer(sim, settings=QUICK, clock=clock) as consumer:
        assert (consumer.lag.batches, consumer.lag.ms) == (2, 5_000)
        await consumer.next_descriptors(2)
        await consumer.ack_through(0)
        assert (consumer.lag.batches, consumer.lag.ms) == (1, 0)
        await consumer.ack_through(1)
        assert (consumer.lag.batches, consumer.lag.ms) == (0, 0)
        assert consumer.metrics.frontier == 1


async def test_metrics_count_every_fetch_and_are_there_before_the_start(sim: SimStore):
    await produced(sim, [b"a"], [b"b"])
    consumer = Consumer(sim, settings=QUICK, collect=False)
    assert consumer.metrics.lag_batches == 0
    async with consumer:
        before = consumer.metrics.requests.get("get", 0)
        [first, second] = await consumer.next_descriptors(2)
        for descriptor in (first, second):
            await consumer.fetch_handle().fetch(descriptor)
        assert consumer.metrics.batches_fetched == 2
        assert consumer.metrics.bytes_fetched == first.bytes + second.bytes
        assert consumer.metrics.requests["get"] - before == 3, "one look at the manifest, and a get for each batch"


async def test_a_closed_consumer_says_so(sim: SimStore):
    await produced(sim, [b"a"])
    consumer = Consumer(sim, settings=QUICK)
    with pytest.raises(Closed):
        await consumer.next_batch()
    await consumer.start()
    with pytest.raises(Invalid):
        await consumer.start()
    await consumer.close()
    await consumer.close()
    with pytest.raises(Closed):
        await consumer.ack(0)


@pytest.mark.parametrize("count", [0, -1, 10_001])
async def test_descriptors_are_asked_for_within_limits(sim: SimStore, count: int):
    await produced(sim, [b"a"])
    async with Consumer(sim, settings=QUICK) as consumer:
        with pytest.raises(Invalid):
            await consumer.next_descriptors(count)


def test_the_blocking_face_does_the_same(tmp_path: Path):
    url = f"file://{tmp_path}/buffer"
    with BlockingProducer(url, settings=QUICK) as producer:
        handles = [producer.produce([b"%d" % number], b"m") for number in range(3)]
        assert [handle.durable().count for handle in handles] == [1, 1, 1]
        producer.flush()
        assert producer.metrics.entries == 3
    with BlockingConsumer(url, settings=QUICK) as consumer:
        batch = consumer.next_batch(wait_ms=1_000)
        assert batch is not None
        consumer.ack(batch.seq)
        handle = consumer.fetch_handle()
        found = batch.entries
        for descriptor in consumer.next_descriptors(10):
            found = found + handle.fetch_blocking(descriptor).entries
            consumer.ack_through(descriptor.seq)
        consumer.flush()
        assert found == [b"0", b"1", b"2"]
        assert (consumer.epoch > 0, consumer.metrics.acks > 0) == (True, True)
