"""A broker on which nothing but time happens: what that brings about is written, synced, published and handed out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Broker, Invalid, Record, Settings
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, start, turn

LEASE_MS = 100


class QuietClock(ManualClock):
    """A clock that is set, or that runs on while the machine is suspended, and nobody is told."""

    def _tell(self) -> None:
        pass


async def test_a_dead_letter_that_only_an_alarm_brought_about_is_synced_published_and_handed_out() -> None:
    clock = QuietClock()
    async with await Broker.open(None, clock=clock) as broker:
        poison: dict[str, Any] = {"max_deliveries": 1, "dead_letter": "dead"}
        await make_queue(broker, jobs=1, lease_ms=LEASE_MS, durability="fsync", **poison)
        await make_queue(broker, "dead", durability="fsync")
        await broker.claim("q", node="dies")
        waits_here = await start(broker.claim("q", node="w", wait_ms=30_000))
        waits_there = await start(broker.claim("dead", node="undertaker", wait_ms=30_000))
        events = broker.events()
        clock.advance(LEASE_MS + 1)
        claim = await asyncio.wait_for(waits_there, 10)
        assert [job.data for job in claim.jobs] == [b"1"]
        assert [row.event for row in events.drain()][:3] == ["expired", "produced", "dead_lettered"]
        waits_here.cancel()


async def test_a_lease_that_runs_out_is_published_without_another_command() -> None:
    """The worker behind the stream is silent, so the job goes nowhere: nothing follows that would tell of it."""
    clock = QuietClock()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=LEASE_MS)
        stream = broker.work("q", node="w")
        await anext(stream)
        events = broker.events()
        clock.advance(LEASE_MS + 1)
        row = await asyncio.wait_for(anext(events), 10)
        assert (row.event, row.runs) == ("expired", [1, 1])
        stream.close()


async def test_a_wall_clock_that_was_set_wakes_what_it_makes_due() -> None:
    """Nobody tells the broker; it looks by itself while something waits for time to pass."""
    clock = QuietClock()
    async with await Broker.open(None, clock=clock, settings=Settings(clock_check_ms=10)) as broker:
        await make_queue(broker)
        await broker.produce("q", [Record(data=b"1", deliver_at=clock.wall_ms() + 3_600_000)])
        stream = broker.work("q", node="w")
        waiting = await start(anext(stream))
        clock.jump_wall(3_600_001)
        assert (await asyncio.wait_for(waiting, 10)).seqs == [1]
        stream.close()


async def test_a_machine_that_was_suspended_ends_the_leases_that_ran_out_meanwhile() -> None:
    clock = QuietClock()
    async with await Broker.open(None, clock=clock, settings=Settings(clock_check_ms=10)) as broker:
        await make_queue(broker, jobs=1, lease_ms=3_600_000)
        await broker.claim("q", node="w")
        waiting = await start(broker.claim("q", node="v", wait_ms=30_000))
        clock.advance(3_600_001)
        assert (await asyncio.wait_for(waiting, 10)).seqs in ([1], [])
        assert broker.metrics.expired == 1


async def test_a_deadline_that_an_extend_brought_forward_wakes_those_who_wait() -> None:
    clock = ManualClock()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=30_000)
        await broker.claim("q", node="w")
        waiting = await start(broker.claim("q", node="v", wait_ms=30_000))
        await broker.extend("q", node="w", seqs=[1], lease_ms=LEASE_MS)
        clock.advance(LEASE_MS + 1)
        assert (await asyncio.wait_for(waiting, 10)).seqs == [1]


async def test_a_command_that_is_refused_leaves_nothing_to_the_next_one() -> None:
    """It looked at the clock, which had been set: that is logged, and the job it makes due is handed out."""
    clock = QuietClock()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker)
        await broker.produce("q", [Record(data=b"1", deliver_at=clock.wall_ms() + 3_600_000)])
        waiting = await start(broker.claim("q", node="w", wait_ms=1000))
        clock.jump_wall(3_600_000)
        with pytest.raises(Invalid):
            broker.produce("q", [Record(data=b"2", unique_key="k")] * 2)
        await turn()
        assert waiting.result().seqs == [1]
        assert broker._engine.log.write() == broker._engine.log.pending_batch - 1


async def test_a_mark_of_time_ends_a_lease_in_the_first_millisecond_past_its_deadline(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    clock.advance(1000)
    broker.mark_time()
    assert broker.metrics.expired == 0
    clock.advance(1)
    broker.mark_time()
    assert broker.metrics.expired == 1
