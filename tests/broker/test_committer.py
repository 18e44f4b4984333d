"""When a sync is begun, on a loop that runs nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tenure.broker.durability.committer import Committer
from tenure.broker.engine import Engine
from tenure.core.level import Level
from tenure.settings import Settings
from tenure.testing.clock import ManualClock
from tests.kit import run
from tests.kit.brokers import GatedLog


class Planned:
    """A timer, a future or a thread's result: kept, and cancelled on demand."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback


class StillLoop:
    """An event loop that only notes what it is asked for."""

    def __init__(self) -> None:
        self.timers_s: list[float] = []
        self.syncs = 0

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Note nothing: the tests call the committer themselves."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Planned:
        self.timers_s.append(delay_s)
        return Planned()

    def create_future(self) -> Planned:
        return Planned()

    def run_in_executor(self, thread: object, work: Callable[..., None], *arguments: object) -> Planned:
        self.syncs += 1
        return Planned()


def opened() -> tuple[Engine, Committer, StillLoop]:
    engine = Engine(GatedLog(), clock=ManualClock(), settings=Settings(sync_interval_ms=50))
    engine.recover()
    loop = StillLoop()
    return engine, Committer(engine, cast(Any, loop), lambda: None), loop


def test_the_opening_is_durable_before_the_first_command() -> None:
    engine, _, _ = opened()
    assert engine.synced_batch == engine.log.synced_batch == engine.log.pending_batch - 1 == 1


def test_a_log_with_nothing_to_sync_plans_no_sync() -> None:
    _, committer, loop = opened()
    committer._want_sync()
    assert (loop.syncs, loop.timers_s) == (0, [])


def test_a_write_that_no_caller_waits_for_is_synced_after_the_interval() -> None:
    engine, committer, loop = opened()
    run.produce(engine, "t", [b"x"])
    engine.write()
    committer._want_sync()
    assert (loop.syncs, loop.timers_s) == (0, [0.05])


def test_a_write_that_a_caller_waits_for_is_synced_at_once() -> None:
    engine, committer, loop = opened()
    run.produce(engine, "t", [b"x"])
    committer.when_reached(engine.write(), Level.SYNCED, lambda _: None)
    committer._want_sync()
    assert (loop.syncs, loop.timers_s) == (1, [])


def test_a_sync_under_way_is_not_joined_by_a_second_one_or_by_a_timer() -> None:
    engine, committer, loop = opened()
    run.produce(engine, "t", [b"x"])
    committer.when_reached(engine.write(), Level.SYNCED, lambda _: None)
    committer._want_sync()
    run.produce(engine, "t", [b"y"])
    engine.write()
    committer._want_sync()
    assert (loop.syncs, loop.timers_s) == (1, [])
