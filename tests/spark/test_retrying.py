"""Repeating what is refused for now: bounded, with growing waits, and only what may be repeated. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tenure.errors import Closed, Conflict, Corrupt, Denied, Indeterminate, Invalid, LeaseLost, Overloaded, TenureError
from tenure.spark.jobs.retrying import Retrying, Stopped, Waiting
from tenure.testing import ManualClock

BUSY = Overloaded("the table is busy", code="table_busy", table="t")


class Waits(threading.Event):
    """An event whose waits take no time, but move the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.waited_ms: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited_ms.append(timeout * 1000)
        self._clock.advance(round(timeout * 1000))
        return self.is_set()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stop(clock: ManualClock) -> Waits:
    return Waits(clock)


def refusing(*errors: TenureError) -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return call


def test_a_refusal_for_now_is_repeated_until_it_is_none(stop: Waits, clock: ManualClock) -> None:
    told: list[Waiting | None] = []
    retrying = Retrying(within_ms=None, stop=stop, on_wait=told.append, clock=clock)
    assert retrying(refusing(BUSY, Indeterminate("lost"), Closed("it restarts"))) == "done"
    assert [each and (each.error.code, each.attempts) for each in told] == [
        ("table_busy", 1),
        ("indeterminate", 2),
        ("read_only", 3),
        None,
    ]


@pytest.mark.parametrize("kind", [Invalid, Conflict, Corrupt, Denied, LeaseLost])
def test_what_would_be_refused_again_is_not_repeated(stop: Waits, clock: ManualClock, kind: type[TenureError]) -> None:
    with pytest.raises(kind):
        Retrying(within_ms=None, stop=stop, clock=clock)(refusing(kind("for good")))
    assert stop.waited_ms == []


@pytest.mark.parametrize("code", ["forked", "closed", "client_closed", "producer_halted", "ingest_failed"])
def test_what_is_closed_in_this_process_is_not_repeated(stop: Waits, clock: ManualClock, code: str) -> None:
    """Naive: a store that was used before a fork refuses for ever, and so does the job that follows a buffer."""
    with pytest.raises(Closed):
        Retrying(within_ms=None, stop=stop, clock=clock)(refusing(Closed("over", code=code)))
    assert stop.waited_ms == []


@pytest.mark.parametrize("code", ["read_only", "shutting_down", "not_ready"])
def test_a_server_that_is_closed_for_now_is_asked_again(stop: Waits, clock: ManualClock, code: str) -> None:
    assert Retrying(within_ms=None, stop=stop, clock=clock)(refusing(Closed("later", code=code))) == "done"


def test_waits_grow_up_to_half_a_minute_and_no_two_jobs_wait_alike(stop: Waits, clock: ManualClock) -> None:
    Retrying(within_ms=None, stop=stop, clock=clock, chance=lambda: 1.0)(refusing(*[BUSY] * 9))
    assert stop.waited_ms == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    stop.waited_ms.clear()
    Retrying(within_ms=None, stop=stop, clock=clock)(refusing(*[BUSY] * 40))
    assert len(set(stop.waited_ms[10:])) > 1


def test_a_job_that_is_to_end_gives_up_in_time_and_says_what_to_do(stop: Waits, clock: ManualClock) -> None:
    with pytest.raises(Overloaded, match=r"busy \(\d+ attempts in 5 s\)\. See .* run again") as caught:
        Retrying(within_ms=5_000, stop=stop, clock=clock)(refusing(*[BUSY] * 100))
    assert (caught.value.code, caught.value.detail) == ("table_busy", {"table": "t"})
    assert 4_990 <= sum(stop.waited_ms) <= 5_000
    with pytest.raises(Overloaded, match=r"^the table is busy$"):
        Retrying(within_ms=0, stop=stop, clock=clock)(refusing(BUSY))


def test_who_asks_for_an_end_does_not_wait_for_the_table(stop: Waits, clock: ManualClock) -> None:
    retrying = Retrying(within_ms=None, stop=stop, on_wait=lambda _: stop.set(), clock=clock)
    with pytest.raises(Stopped):
        retrying(refusing(BUSY))
