"""Looking at a queue: jobs by state, one job, live leases. Looking changes nothing."""

from __future__ import annotations

import pytest

from tenure import Broker, NotFound
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, reopen, start

# One job


async def test_a_story_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], reason="no")
    before = broker.job("q", 1)
    async with await reopen(broker, log, clock) as broker:
        assert broker.job("q", 1) == before


async def test_a_job_that_is_not_synced_yet_is_not_there_yet(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, durability="fsync")
        log.gate.clear()
        producing = await start(broker.produce("q", [b"1"]))
        assert broker.jobs("q").items == []
        with pytest.raises(NotFound):
            broker.job("q", 1)
        log.gate.set()
        await producing
        assert bytes(broker.job("q", 1).data) == b"1"


# Leases


async def test_listing_names_does_not_hold_back_the_time_for_the_rest_of_the_turn(broker: Broker, clock: ManualClock):
    """A list takes no time of its own: what follows in the same turn must not see that of the last command."""
    await broker.put_topic("q", {"type": "queue"})
    await broker.produce("q", [b"1"])
    await broker.synced()
    clock.advance(5_000)
    broker.topics()
    counters = broker.topic("q", touch=False).queue
    assert counters is not None
    assert counters.oldest_ready_ms == 5_000
