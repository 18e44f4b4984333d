"""The wall clock beside log time: a step of it is logged, a pause of the process between two reads is none."""

from __future__ import annotations

from tenure import Broker
from tenure.core.events import ClockSet, Event
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue


class PausedClock(ManualClock):
    """A process that stands still once between its reads of the boot clock and of the wall clock."""

    pause_ms = 0

    def wall_ms(self) -> int:
        pause_ms, self.pause_ms = self.pause_ms, 0
        self._boot_ms += pause_ms
        self._wall_ms += pause_ms
        return super().wall_ms()


def steps_of(broker: Broker) -> list[int]:
    """Return a list that grows by each offset of the wall clock that is logged."""
    steps: list[int] = []

    def note(event: Event) -> None:
        if isinstance(event, ClockSet):
            steps.append(event.wall_offset_ms)

    broker._engine.listeners.append(note)
    return steps


async def test_a_pause_between_two_reads_is_no_step_of_the_wall_clock() -> None:
    clock = PausedClock()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker, jobs=2, lease_ms=1_000)
        steps = steps_of(broker)
        clock.pause_ms = 500
        first = await broker.claim("q", node="w")
        second = await broker.claim("q", node="w")
        assert not steps
        assert first.deadline == second.deadline == clock.wall_ms() + 1_000


async def test_a_pause_while_a_broker_opens_is_none_either() -> None:
    clock = PausedClock()
    clock.pause_ms = 500
    async with await Broker.open(None, clock=clock) as broker:
        steps = steps_of(broker)
        await make_queue(broker, jobs=1, lease_ms=1_000)
        claim = await broker.claim("q", node="w")
        assert not steps
        assert claim.deadline == clock.wall_ms() + 1_000


async def test_a_step_of_the_wall_clock_is_logged_once() -> None:
    clock = PausedClock()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker, jobs=2)
        steps = steps_of(broker)
        clock.jump_wall(500)
        await broker.claim("q", node="w")
        await broker.claim("q", node="w")
        assert len(steps) == 1
