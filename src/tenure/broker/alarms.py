"""Waking up at a given log time, with one timer of the loop for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

__all__ = ["Alarm", "Alarms"]


class Alarm:
    """One wake-up; ``cancel`` makes it silent."""

    __slots__ = ("due_ms", "ring")

    def __init__(self, due_ms: int, ring: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        """Do not ring."""
        self.ring = None


class Alarms:
    """Alarms by log time.

    ``check`` rings those that are due; the loop's timer calls it, and so does a clock that was moved.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], int]) -> None:
        self._loop = loop
        self._now = now
        self._heap: list[tuple[int, int, Alarm]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0

    def at(self, due_ms: int, ring: Callable[[], None]) -> Alarm:
        """Ring once log time reaches ``due_ms``."""
        alarm = Alarm(due_ms, ring)
        heappush(self._heap, (due_ms, next(self._number), alarm))
        self._set_timer()
        return alarm

    def check(self) -> None:
        """Ring everything that is due."""
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            alarm = heappop(self._heap)[2]
            if alarm.ring is not None:
                alarm.ring()
        self._set_timer()

    def _set_timer(self) -> None:
        while self._heap and self._heap[0][2].ring is None:
            heappop(self._heap)
        if not self._heap:
            self.close()
            return
        due = self._heap[0][0]
        if self._timer is not None and self._timer_due <= due:
            return
        self.close()
        self._timer_due = due
        # One millisecond is added because the loop's clock and ours cut their milliseconds at different places.
        self._timer = self._loop.call_later(max(due - self._now(), 0) / 1000 + 0.001, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.check()

    def close(self) -> None:
        """Let go of the loop's timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
