"""The runtime's time as a number in a test's hand: it passes when the `ManualClock` beneath it is moved."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count

from tenure.testing.clock import ManualClock

__all__ = ["ManualTiming"]


class ManualTiming:
    """What the worker runtime asks about time, answered by a clock that moves only when it is told to.

    >>> from tenure.testing import ManualClock, ManualTiming
    >>> clock = ManualClock(boot_ms=1_000)
    >>> timing = ManualTiming(clock)
    >>> clock.advance(500)
    >>> timing.now_ms()
    1500
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        clock.subscribe(self._wake)

    def now_ms(self) -> int:
        return self._clock.boot_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def sleep_ms(self, ms: float) -> None:
        """Return once the clock has moved by ``ms``; other tasks get their turn in any case."""
        if ms <= 0:
            return await asyncio.sleep(0)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self.now_ms() + ms, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        """How many wait for time to pass."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def _wake(self) -> None:
        now_ms = self.now_ms()
        while self._sleepers and (self._sleepers[0][0] <= now_ms or self._sleepers[0][2].done()):
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
