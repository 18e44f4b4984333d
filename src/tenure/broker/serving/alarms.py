"""Alarms at a given log time, with one timer of the loop for all of them.

The loop's timer runs on the monotonic clock, log time on the boot clock and ``deliver_at`` on the wall clock: a suspend
or a clock that is set moves one of them and not the others. So the timer never sleeps longer than ``check_ms`` while an
alarm is pending, and then looks at the clocks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

__all__ = ["Alarm", "Alarms"]


class Alarm:
    """One wake-up; ``cancel`` prevents it. ``ring`` is None after it rang or was cancelled."""

    __slots__ = ("due_ms", "kept_by", "ring")

    def __init__(self, alarms: Alarms, due_ms: int, ring: Callable[[], None]) -> None:
        self.kept_by: Alarms | None = alarms
        self.due_ms = due_ms
        self.ring: Callable[[], None] | None = ring

    def cancel(self) -> None:
        """Do not ring. Cancelling an alarm that rang, or was cancelled before, changes nothing."""
        self.ring, alarms, self.kept_by = None, self.kept_by, None
        if alarms is not None:
            alarms.count_cancelled()


class Alarms:
    """Alarms by log time.

    ``check`` rings those that are due by ``now``; the loop's timer calls it, and so does a clock that was moved.
    ``clock`` is the time by which the timer is set: a turn of the loop has one time, and a process that is stopped in
    the middle of it would go on with one that has long passed. ``after`` is called after each check, to handle what
    the alarms, or a new reading of the clocks, have changed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], int],
        *,
        clock: Callable[[], int],
        check_ms: int,
        after: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._now = now
        self._clock = clock
        self._check_ms = check_ms
        self._after = after
        self._heap: list[tuple[int, int, Alarm]] = []
        self._number = count()
        self._cancelled_count = 0
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0
        self._closed = False

    def __len__(self) -> int:
        """Return how many alarms are kept, cancelled ones included."""
        return len(self._heap)

    def at(self, due_ms: int, ring: Callable[[], None]) -> Alarm:
        """Ring when log time reaches ``due_ms``; in a later turn of the loop, also if that time has come already."""
        alarm = Alarm(self, due_ms, ring)
        heappush(self._heap, (due_ms, next(self._number), alarm))
        self._set_timer()
        return alarm

    def check(self) -> None:
        """Ring every alarm that is due at this moment, each once.

        They are taken out before the first one rings: an alarm that is set meanwhile, for any time, rings in a later
        turn, so a check always ends. An alarm that raises is reported to the loop, and the others ring all the same.
        """
        self._cancel_timer()
        now = self._now()
        due: list[Alarm] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(self._pop())
        for alarm in due:
            self._ring(alarm)
        self._set_timer()
        self._after()

    def _pop(self) -> Alarm:
        alarm = heappop(self._heap)[2]
        if alarm.kept_by is None:
            self._cancelled_count -= 1
        alarm.kept_by = None
        return alarm

    def _ring(self, alarm: Alarm) -> None:
        ring, alarm.ring = alarm.ring, None
        if ring is None:
            return
        try:
            ring()
        except Exception as error:
            self._loop.call_exception_handler({"message": "an alarm of the broker failed", "exception": error})

    def count_cancelled(self) -> None:
        """Count one more cancelled alarm. When they outnumber the others, drop them."""
        self._cancelled_count += 1
        if 2 * self._cancelled_count > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].kept_by is self]
            heapify(self._heap)
            self._cancelled_count = 0

    def _set_timer(self) -> None:
        while self._heap and self._heap[0][2].kept_by is None:
            self._pop()
        if not self._heap or self._closed:
            self._cancel_timer()
            return
        due = self._heap[0][0]
        if self._timer is not None and self._timer_due <= due:
            return
        self._cancel_timer()
        now = self._clock()
        due = min(max(due, now), now + self._check_ms)
        self._timer_due = due
        if due == now:
            self._timer = self._loop.call_soon(self.check)
        else:  # a millisecond more, because the loop's clock and ours cut their milliseconds at different places
            self._timer = self._loop.call_later((due - now + 1) / 1000, self.check)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop ringing."""
        self._closed = True
        self._cancel_timer()
