"""An event loop whose time is a number and whose threads are a list, so that one seed gives one life.

The loop runs one turn when it is told to. Its clock is the broker's clock, so timers and log time agree. Work handed
to an executor does not run in a thread: it waits in line, takes as long as the disk says, and comes back in a turn.
Nothing here looks at wall time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from tenure.testing import ManualClock
from tests.lives.anomaly import Anomaly

__all__ = ["TURNS_MAX", "LifeClock", "TurnLoop"]

T = TypeVar("T")

TURNS_MAX = 3_000
"""Turns in which a loop that gets no commands and no time must have run out of things to do."""


class LifeClock(ManualClock):
    """A manual clock that can also pass as a real one does: without telling anybody."""

    def pass_by(self, ms: int) -> None:
        """Let time pass on the wall and since boot; only a timer of the loop will notice."""
        self._boot_ms += ms
        self._wall_ms += ms

    def step_wall(self, ms: int) -> None:
        """Set the wall clock as NTP does: without telling anybody."""
        self._wall_ms += ms

    def inherit(self) -> LifeClock:
        """Return a clock for the next process: the same time, and nobody who listens."""
        return LifeClock(wall_ms=self._wall_ms, boot_ms=self._boot_ms, boot_id=self._boot_id)


class _Work:
    """A call handed to an executor."""

    def __init__(self, future: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        self.future = future
        self.call = call
        self.timer: asyncio.TimerHandle | None = None
        self.outcome: tuple[Any, BaseException | None] | None = None

    def run(self) -> None:
        """Make the call, once."""
        if self.outcome is None:
            try:
                self.outcome = (self.call(), None)
            except Exception as error:
                self.outcome = (None, error)

    def report(self) -> None:
        assert self.outcome is not None
        if not self.future.done():
            result, error = self.outcome
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)


class _NoFiles:
    """A selector with nothing to select."""

    def select(self, timeout: float | None) -> list[Any]:
        return []


class TurnLoop(asyncio.BaseEventLoop):
    """A loop that is stepped from outside.

    ``pace`` says of each piece of executor work how many milliseconds it takes and whether it takes effect at its
    start or at its end: a sync makes durable what was written before it, and nobody may count on more.
    """

    def __init__(self, clock: LifeClock, pace: Callable[[], tuple[int, bool]]) -> None:
        super().__init__()
        self._selector = _NoFiles()
        self.clock = clock
        self.turns = 0
        self.is_dead = False
        self.in_thread = False
        self.anomaly: Anomaly | None = None
        self.escaped: list[str] = []
        self.retired: list[object] = []
        self._pace = pace
        self._lines: dict[int, deque[_Work]] = {}
        self.set_exception_handler(self._note_escape)

    # What BaseEventLoop asks of a loop.

    def time(self) -> float:
        return self.clock.boot_ms() / 1000

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _check_closed(self) -> None:
        """What is left of a dead process may still ask for a turn when it is collected; it gets none."""
        if not self.is_dead:
            super()._check_closed()  # type: ignore[misc]

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        line = self._lines.setdefault(id(executor), deque())
        self.retired.append(executor)  # its id must not be given to another one
        line.append(_Work(future, lambda: func(*args)))
        if len(line) == 1:
            self._begin(line)
        return future

    # Executor work.

    @property
    def is_working(self) -> bool:
        """Whether anything waits for a thread."""
        return any(self._lines.values())

    def hurry(self) -> None:
        """Finish what the threads are at; what waits behind it begins."""
        for line in list(self._lines.values()):
            if line and line[0].timer is not None:
                self._finish(line)

    def _begin(self, line: deque[_Work]) -> None:
        duration_ms, at_start = self._pace()
        if at_start:
            self._run(line[0])
        line[0].timer = self.call_later(duration_ms / 1000, self._finish, line)

    def _finish(self, line: deque[_Work]) -> None:
        work = line.popleft()
        if work.timer is not None:
            work.timer.cancel()
        self._run(work)
        work.report()
        if line:
            self._begin(line)

    def _run(self, work: _Work) -> None:
        self.in_thread = True
        try:
            work.run()
        finally:
            self.in_thread = False

    # Turns.

    def turn(self) -> None:
        """Run what is ready, once; raises the anomaly that somebody met on the way."""
        self.turns += 1
        self.stop()
        self.run_forever()
        if self.anomaly is not None:
            raise self.anomaly

    @property
    def is_idle(self) -> bool:
        """Whether another turn would find nothing to run at this time."""
        due = self._next_due()
        return not self._ready and (due is None or due > self.time() + 1e-7)  # type: ignore[attr-defined]

    def _next_due(self) -> float | None:
        whens = [handle.when() for handle in self._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        return min(whens, default=None)

    def settle(self, *, hurry: bool = False) -> None:
        """Run turns until nothing is ready, without letting time pass; ``hurry`` makes threads take no time either."""
        for _ in range(TURNS_MAX):
            if hurry and self.is_working:
                self.hurry()
            elif self.is_idle:
                return
            self.turn()
        raise Anomaly("spin", f"the loop is still busy after {TURNS_MAX} turns in which no time passed")

    def run_for(self, ms: int) -> None:
        """Let time pass, from timer to timer."""
        end = self.clock.boot_ms() + ms
        for _ in range(TURNS_MAX + ms // 1000):  # a broker may look around every second
            self.settle()
            due, now = self._next_due(), self.clock.boot_ms()
            wake = end if due is None else min(end, max(now + 1, round(due * 1000)))
            if now >= end:
                return
            self.clock.pass_by(wake - now)
        raise Anomaly("spin", f"{TURNS_MAX + ms // 1000} timers went off within {ms} ms")

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, threads taking no time."""
        task = self.create_task(work)
        for _ in range(TURNS_MAX):
            if task.done():
                return task.result()
            if self.is_idle and not self.is_working:
                break
            self.settle(hurry=True)
        task.cancel()
        raise Anomaly("hang", f"{work!r} never comes back")

    # The end of a process.

    def die(self) -> None:
        """Stop as a killed process does: nothing that was under way goes on, and nothing is said about it."""
        self.is_dead = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # else Python says that it was never awaited
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def _note_escape(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if self.is_dead:
            return
        error = context.get("exception")
        if isinstance(error, Anomaly):
            self.anomaly = self.anomaly or error
            return
        self.escaped.append(f"{context.get('message')}: {error!r}")
