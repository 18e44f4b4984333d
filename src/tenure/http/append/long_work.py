"""Long work on the event loop, in short turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TypeVar

__all__ = ["Turns", "finish"]

T = TypeVar("T")


class Turns:
    """A queue of long work: one piece of it runs per turn of the loop, for ``turn_ms`` and the step that it is at.

    Everything else on the loop waits for one turn of long work and no more, for any amount of it. A request that waits
    for the disk needs several turns of the loop: while ``pressed`` returns that there is one, long work rests for as
    long as it has worked.
    """

    def __init__(
        self, turn_ms: int, *, pressed: Callable[[], bool] = lambda: False, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._turn_s = turn_ms / 1000
        self._pressed = pressed
        self._clock = clock
        self._lock = asyncio.Lock()

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run steps to their end, and return what they return."""
        while True:
            async with self._lock:
                began_s = self._clock()
                end_s = began_s + self._turn_s
                try:
                    next(steps)
                    while (now_s := self._clock()) < end_s:
                        next(steps)
                except StopIteration as done:
                    found: T = done.value
                    return found
                await asyncio.sleep(now_s - began_s if self._pressed() else 0)


def finish(steps: Generator[None, None, T]) -> T:
    """Run short steps to their end at once, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
