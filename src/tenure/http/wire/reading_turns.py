"""Reading in short turns: of large bodies, and of what is thrown away.

Of a large body the loop would take eight megabytes at a time, and two hundred connections may send one at once. All of
them together have a little of each turn of the loop, and what is left waits in order. So everything else waits for one
turn of this and no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

__all__ = ["ReadingTurns"]


class ReadingTurns:
    """Turns in which much may be read. A turn begins with the first `used_up` and ends with the loop's own turn; with
    ``rest_ms``, that much later.
    """

    def __init__(
        self,
        turn_ms: int,
        *,
        loop: asyncio.AbstractEventLoop,
        rest_ms: int = 0,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._turn_s = turn_ms / 1000
        self._rest_s = rest_ms / 1000
        self._loop = loop
        self._clock = clock
        self._end_s: float | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    def used_up(self) -> bool:
        """Return whether the time of this turn is over; the caller then lets its reading `wait`."""
        if self._end_s is None:
            self._begin()
            return False
        return self._clock() >= self._end_s

    def wait(self, read_on: Callable[[], None]) -> None:
        """Call this in a later turn, after those that wait already."""
        self._waiting.append(read_on)
        if self._end_s is None:
            self._begin()

    def _begin(self) -> None:
        self._end_s = self._clock() + self._turn_s
        if self._rest_s:
            self._loop.call_later(self._rest_s, self._next)
        else:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._end_s = None
        for _ in range(len(self._waiting)):  # one that is not done waits again, behind the others
            if self.used_up():
                break
            self._waiting.popleft()()
