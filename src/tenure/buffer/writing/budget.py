"""A bound on what is in flight, first come first served; a cancelled wait leaks nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tenure.clock import Clock

__all__ = ["Budget", "Turns"]


class Budget:
    """Bytes and calls that may be held at once. One that is larger than everything is let in alone."""

    def __init__(self, *, bytes_max: int, calls_max: int) -> None:
        self._bytes_max = bytes_max
        self._calls_max = calls_max
        self.bytes = 0
        self.calls = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def full(self, weight: int) -> bool:
        """Whether ``acquire`` would wait."""
        return bool(self._waiting) or not self._fits(weight)

    async def acquire(self, weight: int) -> None:
        """Take ``weight`` bytes and one call, waiting for them if need be."""
        if not self.full(weight):
            self._take(weight)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.release(weight, 1)
            else:
                self._waiting = deque(item for item in self._waiting if item[1] is not granted)
                self._grant()
            raise

    def release(self, weight: int, calls: int) -> None:
        """Give back, and let in whoever waits first."""
        self.bytes -= weight
        self.calls -= calls
        self._grant()

    def fail(self, error: Exception) -> None:
        """Whoever waits hears this."""
        waiting, self._waiting = self._waiting, deque()
        for _, granted in waiting:
            if not granted.done():
                granted.set_exception(error)

    def _fits(self, weight: int) -> bool:
        if self.calls == 0:
            return True
        return self.bytes + weight <= self._bytes_max and self.calls < self._calls_max

    def _take(self, weight: int) -> None:
        self.bytes += weight
        self.calls += 1

    def _grant(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            weight, granted = self._waiting.popleft()
            if not granted.done():
                self._take(weight)
                granted.set_result(None)


_WITHHELD_MS = 1
"""A loop that was withheld for this long gets a turn."""
_SHARE = 5
"""While something is under way, the loop gets this fraction of the time that it was withheld for."""
_SHARE_MS_MAX = 20


class Turns:
    """Knows for how long the loop has not run since the last ``note``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        self._withheld_ms = 0

    def note(self) -> None:
        """Note that there is work for the loop; the loop clears the note with its next turn."""
        if self._since_ms is None:
            self._since_ms = self._clock.boot_ms()
            asyncio.get_running_loop().call_soon(self._ran)

    async def take(self, under_way: Callable[[], asyncio.Future[int] | None]) -> None:
        """Let the loop run if it was withheld; end early once what is under way is done."""
        if self._since_ms is None or (withheld_ms := self._clock.boot_ms() - self._since_ms) < _WITHHELD_MS:
            return
        self._withheld_ms += withheld_ms
        await asyncio.sleep(0)  # a timer that is due puts something under way
        waiting = under_way()
        if waiting is not None and self._withheld_ms >= _SHARE:
            share_ms, self._withheld_ms = min(self._withheld_ms // _SHARE, _SHARE_MS_MAX), 0
            await asyncio.wait([waiting], timeout=share_ms / 1000)

    def _ran(self) -> None:
        self._since_ms = None
