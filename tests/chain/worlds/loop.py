"""An event loop whose time is a number: a sleep costs nothing, and one seed gives one course of events."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from tests.lives.anomaly import Anomaly

__all__ = ["VirtualLoop"]

T = TypeVar("T")


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop that goes to its next timer at once when nothing is ready."""

    _ready: deque[Any]
    _scheduled: list[Any]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        #: Errors of tasks that nobody awaited.
        self.escaped: list[str] = []
        self.set_exception_handler(self._note_escape)

    @property
    def now_ms(self) -> int:
        return round(self._now_s * 1000)

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        """Run what is ready, or go on to the next timer; a turn of a loop that waits for no file and no thread."""
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not self._ready and not self._stopping:
            if not timers:
                raise Anomaly("hang", "everybody waits, and no timer is set")
            self._now_s = max(self._now_s, timers[0]._when)
        while timers and timers[0]._when <= self._now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            self._ready.append(timer)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that runs at the same time."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Make the call at once: a simulated disk takes no time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        """Cancel what is left, let it unwind, and close."""
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    def _note_escape(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.escaped.append(f"{context.get('message')}: {context.get('exception')!r}")
