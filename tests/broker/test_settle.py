"""Ack, nack, extend, and what happens to a lease whose time is up."""

from __future__ import annotations

from tenure import Broker
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, numbers, reopen

# Expiry


async def test_the_wall_clock_does_not_end_leases(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    clock.jump_wall(10**9)
    assert numbers(broker)["in_flight"] == 1
    clock.jump_wall(-(10**10))
    clock.advance(1001)
    assert numbers(broker)["in_flight"] == 0


async def test_leases_and_counts_survive_a_restart_and_run_on(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", max_count=2, lease_ms=1000)
    await broker.nack("q", node="w", seqs=[2])
    second = await broker.claim("q", node="w", lease_ms=5000)
    clock.advance(600)
    broker = await reopen(broker, log, clock)
    assert numbers(broker)["in_flight"] == 2
    clock.advance(401)
    claim = await broker.claim("q", node="v", max_count=9)
    assert (claim.seqs, claim.deliveries(1), claim.deliveries(3)) == ([1, 3], 2, 1)
    assert (await broker.ack("q", node="w", lease_id=second.lease_id)).count == 1
    await broker.close()


async def test_an_expiry_needs_no_caller_to_count(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="w", max_count=3, lease_ms=1000)
    clock.advance(1001)
    assert numbers(broker)["ready"] == 3
    assert broker.metrics.expired == 3
