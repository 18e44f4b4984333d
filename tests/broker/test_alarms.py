"""Alarms: each rings once, at its time, and none of them stops the loop or the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tenure.broker.serving.alarms import Alarms
from tests.kit.brokers import turn


class Bench:
    """Alarms on the running loop, by a clock that is a number, and what they did."""

    def __init__(self, *, check_ms: int = 1_000) -> None:
        self.now = 0
        self.held: int | None = None
        self.rang: list[Any] = []
        self.checks = 0
        self.alarms = Alarms(
            asyncio.get_running_loop(),
            lambda: self.now if self.held is None else self.held,
            clock=lambda: self.now,
            check_ms=check_ms,
            after=self._after,
        )

    def _after(self) -> None:
        self.checks += 1

    def ring(self, name: object) -> Callable[[], None]:
        return lambda: self.rang.append(name)


async def test_alarms_ring_once_in_the_order_of_their_time() -> None:
    bench = Bench()
    for due in (30, 10, 20, 40):
        bench.alarms.at(due, bench.ring(due))
    bench.now = 30
    bench.alarms.check()
    bench.alarms.check()
    assert bench.rang == [10, 20, 30]
    assert bench.checks == 2, "after every check there may be something left to do"


async def test_a_turn_that_goes_on_with_a_time_long_passed_puts_off_no_alarm() -> None:
    """A process is stopped in the middle of a turn: an alarm set then, by the time of the turn, comes before others."""
    bench = Bench()
    bench.alarms.at(200, bench.ring("first"))
    bench.held, bench.now = 60, 260
    bench.alarms.at(135, bench.ring("second"))
    bench.held = None
    await turn()
    assert bench.rang == ["second", "first"]


async def test_an_alarm_set_by_an_alarm_for_a_time_that_has_come_rings_in_another_turn() -> None:
    bench = Bench()

    def again() -> None:
        bench.rang.append("again")
        if len(bench.rang) < 5:
            bench.alarms.at(bench.now, again)

    bench.alarms.at(10, again)
    bench.now = 10
    bench.alarms.check()
    assert bench.rang == ["again"], "one check rings what was due when it began"
    await asyncio.sleep(0)
    assert bench.rang == ["again"] * 2
    await turn()
    assert bench.rang == ["again"] * 5


async def test_an_alarm_that_fails_is_reported_and_keeps_no_other_from_ringing() -> None:
    bench = Bench()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    error = ValueError("no")

    def fails() -> None:
        raise error

    bench.alarms.at(1, fails)
    bench.alarms.at(2, bench.ring("other"))
    bench.now = 2
    bench.alarms.check()
    assert bench.rang == ["other"]
    assert bench.checks == 1
    assert [context["exception"] for context in reported] == [error]


async def test_an_alarm_that_another_one_cancels_in_the_same_check_is_silent() -> None:
    bench = Bench()
    bench.alarms.at(1, lambda: late.cancel())
    late = bench.alarms.at(2, bench.ring("late"))
    keeps = [bench.alarms.at(9, bench.ring("keeps")) for _ in range(3)]
    bench.now = 2
    bench.alarms.check()
    assert bench.rang == []
    for alarm in keeps[:2]:
        alarm.cancel()
    assert len(bench.alarms) == 1, "it is not counted among the cancelled ones that are still kept"


async def test_cancelled_alarms_leave_when_they_come_to_the_top() -> None:
    bench = Bench()
    first = bench.alarms.at(1, bench.ring("first"))
    for due in range(2, 12):
        bench.alarms.at(due, bench.ring(due))
    first.cancel()
    first.cancel()
    assert len(bench.alarms) == 11, "few of them are left where they are"
    bench.alarms.at(12, bench.ring("last"))
    assert len(bench.alarms) == 11


async def test_cancelled_alarms_never_outnumber_those_that_will_ring() -> None:
    bench = Bench()
    bench.alarms.at(1, bench.ring("first"))
    for due in range(2, 1_000):
        bench.alarms.at(due, bench.ring(due)).cancel()
        assert len(bench.alarms) <= 3
    bench.now = 1_000
    bench.alarms.check()
    assert bench.rang == ["first"]
    assert len(bench.alarms) == 0


@pytest.mark.parametrize(("due", "sleeps_ms"), [(400, 401), (1_000, 1_001), (3_600_000, 1_001)])
async def test_the_timer_never_sleeps_longer_than_until_the_clocks_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, due: int, sleeps_ms: int
) -> None:
    """The loop's clock is neither log time nor the wall: either may have moved while it stood still, or ran."""
    bench, delays = Bench(check_ms=1_000), []

    def call_later(delay: float, ring: Callable[[], None]) -> asyncio.Handle:
        delays.append((round(delay * 1000), ring))
        return asyncio.Handle(ring, (), asyncio.get_running_loop())

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    bench.alarms.at(due, bench.ring("rang"))
    assert [delay for delay, _ in delays] == [sleeps_ms]
    bench.now = due  # suspended: log time has come, and the loop's clock has not
    delays[0][1]()
    assert bench.rang == ["rang"]
    assert len(delays) == 1, "nothing is pending, so nothing is looked at"


async def test_alarms_of_a_closed_broker_leave_the_loop_alone() -> None:
    bench = Bench()
    bench.alarms.at(5, bench.ring("early"))
    bench.alarms.close()
    bench.now = 5
    bench.alarms.at(5, bench.ring("late"))
    await turn()
    assert bench.rang == []
