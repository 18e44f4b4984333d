"""Totals: what the broker counts of its own doing."""

from __future__ import annotations

from tenure import Broker, Record
from tenure.broker.observing.meters import _sample
from tenure.core.state.ranges import each
from tenure.histogram import Histogram
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, turn


async def test_every_doing_is_counted(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=10, dead_letter="dead")
    await broker.put_router("r", source="q", dest="copy")
    await broker.produce("q", [Record(data=b"11", tag="t")])
    await broker.claim("q", node="w", max_count=6, lease_ms=1000)
    await broker.extend("q", node="w", seqs=[1, 2], lease_ms=5000)
    await broker.ack("q", node="w", seqs=[1, 99])
    await broker.nack("q", node="w", seqs=[2, 3])
    await broker.nack("q", node="w", seqs=[4], dead=True)
    clock.advance(1001)
    broker.topic("q")
    await broker.redrive("dead")
    await broker.delete_records("q", seqs=[5])
    await broker.put_topic("copy", {"cap_records": 1})
    await make_queue(broker, "apart", jobs=6)
    ran_out, ended, held = [await broker.claim("apart", node=node, max_count=2, isolate=True) for node in "uvw"]
    await broker.begin("apart", node="w", seq=5, lease_id=str(held.lease_id))
    await broker.begin("apart", node="w", seq=5, lease_id=str(held.lease_id))
    await broker.return_jobs("apart", node="w", seqs=[6, 99])
    await broker.extend("apart", node="u", lease_ms=1000, lease_id=ran_out.lease_id)
    await broker.end_node("apart", node="v", seqs=ended.seqs[:1])
    clock.advance(1001)
    broker.topic("apart")
    await turn()
    counted = broker.metrics.as_dict()
    syncs = counted.pop("syncs")
    assert counted == {
        "produced": 17,
        "claimed": 12,
        "extended": 4,
        "acked": 1,
        "nacked": 3,
        "dead_lettered": 1,
        "expired": 4,
        "lost": 3,
        "returned": 2,
        "begun": 1,
        "redriven": 1,
        "deleted": 1,
        "forwarded": 2,
        "evicted": 1,
    }
    assert syncs == broker.metrics.sync_ms.count > 0


async def test_repeats_and_skipped_seqs_count_nothing(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", claim_id="c")
    before = broker.metrics.as_dict() | {"syncs": 0}
    await broker.claim("q", node="w", claim_id="c")
    await broker.ack("q", node="v", seqs=[1])
    await broker.nack("q", node="v", seqs=[1], dead=True)
    await broker.extend("q", node="v", seqs=[1], lease_ms=1000)
    await broker.delete_records("q", seqs=[5])
    assert broker.metrics.as_dict() | {"syncs": 0} == before


def test_a_histogram_puts_a_value_at_its_upper_bound() -> None:
    histogram = Histogram((1, 10))
    for value in (0, 1, 1.5, 10, 11):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.total) == ([2, 2, 1], 5, 23.5)


def test_samples_of_a_long_queue_with_gaps_lie_in_it_and_stand_for_all_of_it() -> None:
    runs = [1, 1000, 5000, 10, 9000, 2000]
    total, samples = _sample(runs, 0)
    assert total == 3010
    assert {seq for seq, _ in samples} <= set(each(runs))
    assert sum(count for _, count in samples) == 3010
    assert [seq for seq, _ in samples if seq >= 9000] != []


def test_of_a_short_queue_every_job_is_its_own_sample() -> None:
    assert _sample([3, 2, 9, 1], 0) == (3, [(3, 1), (4, 1), (9, 1)])


async def test_of_single_jobs_after_many_one_in_eight_is_measured_and_stands_for_all(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1_816)
    clock.advance(100)
    for _ in range(1_000):
        await broker.ack("q", node="w", seqs=(await broker.claim("q", node="w")).seqs)
    meters = broker.meters("q")
    assert (meters.claimed, meters.in_queue_ms.count, meters.in_queue_ms.sum) == (1_000, 1_000, 100_000), "all of them"
    for _ in range(800):
        await broker.ack("q", node="w", seqs=(await broker.claim("q", node="w")).seqs)
    meters = broker.meters("q")
    assert (meters.claimed, meters.in_queue_ms.count, meters.in_queue_ms.sum) == (1_800, 1_800, 180_000)
    assert (meters.acked, meters.processing_ms.count, meters.deliveries.sum) == (1_800, 1_800, 1_800)
    for _ in range(7):
        await broker.ack("q", node="w", seqs=(await broker.claim("q", node="w")).seqs)
    meters = broker.meters("q")
    assert (meters.claimed, meters.in_queue_ms.count) == (1_807, 1_808), "the first of eight stands for the others"
