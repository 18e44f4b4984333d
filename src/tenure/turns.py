"""`Turns`: work of many steps, in turns of the loop of bounded length: between two the loop serves everything else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

__all__ = ["Step", "Turns"]

Step = Callable[[], bool]
"""Do a bounded part of some work; return True when all of it is done."""


def _perf_ms() -> float:
    return perf_counter() * 1000


class Turns:
    """The works that are under way; its length is how many. Each gets a step in turn, until ``turn_ms`` are used up.

    ``after`` is called at the end of each turn. ``clock_ms`` measures a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        turn_ms: int,
        *,
        clock_ms: Callable[[], float] = _perf_ms,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._turn_ms = turn_ms
        self._clock_ms = clock_ms
        self._after = after
        self._steps: deque[Step] = deque()
        self._is_planned = False

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self) -> Callable[[], bool]:
        """Return a function that says whether the time of a turn that begins now is used up."""
        ends_ms = self._clock_ms() + self._turn_ms
        return lambda: self._clock_ms() >= ends_ms

    def run(self, step: Step) -> bool:
        """Take steps of a work in this turn; return True where that was all of it. Raises the error of a step."""
        is_over = self.begin()
        while not step():
            if is_over():
                return False
        return True

    def add(self, step: Step) -> None:
        """Take the steps of a work in the next turns. One whose step raises is reported to the loop, and ends."""
        self._steps.append(step)
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        if self._steps:
            self.run(self._next_step)
            self._after()
        if self._steps:
            self._plan()

    def _next_step(self) -> bool:
        step = self._steps.popleft()
        try:
            if not step():
                self._steps.append(step)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a step of the broker failed", "exception": error})
        return not self._steps

    def close(self) -> None:
        """Take no other step."""
        self._steps.clear()
