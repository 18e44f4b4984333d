"""Ack holes (seed 000 and contract, section 9): counted exactly, capped without wedging."""

from __future__ import annotations

import pytest

from tenure import Broker, Overloaded
from tenure.testing.clock import ManualClock
from tests.broker.support import make_queue, numbers, snapshot, start, turn


async def test_holes_are_the_runs_of_unacked_jobs_below_the_highest_acked_one(broker: Broker) -> None:
    await make_queue(broker, jobs=12)
    await broker.claim("q", node="w", max_count=10)
    expected = [(5, 1), (3, 2), (4, 1), (9, 2), (7, 3), (1, 3), (8, 2), (2, 1), (6, 0), (10, 0)]
    for seq, holes in expected:
        await broker.ack("q", node="w", seqs=[seq])
        assert numbers(broker)["ack_holes"] == holes, f"after {seq}"


async def test_parked_delayed_and_deleted_jobs_are_no_holes(broker: Broker) -> None:
    await make_queue(broker, jobs=5, dlq_strategy="block")
    await broker.claim("q", node="w", max_count=5)
    await broker.ack("q", node="w", seqs=[5])
    assert numbers(broker)["ack_holes"] == 1
    await broker.nack("q", node="w", seqs=[1], delay_ms=1000)
    await broker.nack("q", node="w", seqs=[2], dead=True)
    await broker.delete_records("q", seqs=[3])
    assert numbers(broker)["ack_holes"] == 1
    await broker.nack("q", node="w", seqs=[4], delay_ms=1000)
    assert numbers(broker)["ack_holes"] == 0


async def test_above_the_cap_only_fresh_work_is_refused(broker: Broker) -> None:
    await make_queue(broker, jobs=9, max_ack_holes=1)
    await broker.claim("q", node="w", max_count=5)
    await broker.ack("q", node="w", seqs=[2])
    assert (await broker.claim("q", node="v")).seqs == [6], "at the cap is not above it"
    await broker.ack("q", node="w", seqs=[4])
    before = snapshot(broker)
    with pytest.raises(Overloaded) as error:
        broker.claim("q", node="v")
    assert (error.value.code, error.value.detail["limit"]) == ("ack_hole_cap_exceeded", "max_ack_holes")
    assert snapshot(broker) == before
    await broker.nack("q", node="w", seqs=[3])
    assert (await broker.claim("q", node="v", max_count=9)).seqs == [3], "what is in a hole may drain"
    assert (await broker.ack("q", node="w", seqs=[1])).count == 1, "acks always go through"
    assert (await broker.claim("q", node="v", max_count=9)).seqs == [7, 8, 9]


async def test_the_cap_never_wedges_the_queue(broker: Broker, clock: ManualClock) -> None:
    """Every second job is acked and the rest is left to run out: claims must always find a way to the end."""
    await make_queue(broker, jobs=60, max_ack_holes=2)
    done = 0
    for _ in range(500):
        try:
            claim = await broker.claim("q", node="w", max_count=7, lease_ms=1000)
        except Overloaded:
            clock.advance(1001)
            continue
        if not claim.jobs:
            if not broker.topic("q").count:
                break
            clock.advance(1001)
            continue
        done += (await broker.ack("q", node="w", seqs=claim.seqs[::2])).count
    assert (done, broker.topic("q").count) == (60, 0)


async def test_a_claim_that_waits_above_the_cap_goes_on_when_a_hole_is_closed(broker: Broker) -> None:
    await make_queue(broker, jobs=9, max_ack_holes=1)
    await broker.claim("q", node="w", max_count=5)
    await broker.ack("q", node="w", seqs=[2, 4])
    waiting = await start(broker.claim("q", node="v", wait_ms=1000))
    assert not waiting.done()
    await broker.ack("q", node="w", seqs=[1])
    await turn()
    assert waiting.result().seqs == [6]
