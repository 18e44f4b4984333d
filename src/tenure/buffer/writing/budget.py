"""Back-pressure of a producer: a bound on what is in flight, and turns for the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tenure.clock import Clock

__all__ = ["Budget", "Turns"]


class Budget:
    """The bytes and calls that may be held at once, first come first served. A call above the limit goes in alone."""

    def __init__(self, *, bytes_max: int, calls_max: int) -> None:
        self._bytes_max = bytes_max
        self._calls_max = calls_max
        self.bytes = 0
        self.calls = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def is_full(self, weight: int) -> bool:
        """Return whether ``acquire`` would wait."""
        return bool(self._waiting) or not self._fits(weight)

    @property
    def is_awaited(self) -> bool:
        """Return whether callers wait for room."""
        return bool(self._waiting)

    def is_half(self, weight: int, calls: int) -> bool:
        """Return whether this is half of what may be held: a batch that gathers more would stop its callers."""
        return 2 * weight >= self._bytes_max or 2 * calls >= self._calls_max

    async def acquire(self, weight: int) -> None:
        """Take ``weight`` bytes and one call, waiting for them if need be."""
        if not self.is_full(weight):
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
        """Give back, and let in the first waiters."""
        self.bytes -= weight
        self.calls -= calls
        self._grant()

    def fail(self, error: Exception) -> None:
        """Raise this error in every waiter."""
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
"""The time without a turn after which the loop gets one."""
_SHARE = 5
"""The fraction of its withheld time that the loop gets while something is under way."""
_SHARE_MS_MAX = 20


class Turns:
    """A measure of how long the loop has not run since the last ``note``."""

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
        """Give the loop a turn if it was withheld; return early once what is under way is done."""
        if self._since_ms is None or (withheld_ms := self._clock.boot_ms() - self._since_ms) < _WITHHELD_MS:
            return
        self._withheld_ms += withheld_ms
        await asyncio.sleep(0)  # let a due timer put something under way
        waiting = under_way()
        if waiting is not None and self._withheld_ms >= _SHARE:
            share_ms, self._withheld_ms = min(self._withheld_ms // _SHARE, _SHARE_MS_MAX), 0
            await asyncio.wait([waiting], timeout=share_ms / 1000)

    def _ran(self) -> None:
        self._since_ms = None
