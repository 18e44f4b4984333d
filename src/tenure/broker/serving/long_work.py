"""Work of many steps, in turns of the loop of bounded length: between two turns the loop serves everything else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

__all__ = ["LongWork", "Step"]

Step = Callable[[], bool]
"""Do a bounded part of some work; return True when all of it is done."""


class LongWork:
    """The works that are under way. Each gets a step in turn, until ``turn_ms_max`` of this turn are used up.

    ``after`` is called at the end of each turn. ``clock`` measures a turn, in seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, turn_ms_max: int, after: Callable[[], None]) -> None:
        self._loop = loop
        self._turn_s_max = turn_ms_max / 1000
        self._after = after
        self._works: deque[Step] = deque()
        self._is_planned = False
        self.clock: Callable[[], float] = perf_counter

    def __len__(self) -> int:
        return len(self._works)

    def run(self, step: Step) -> bool:
        """Take steps of a work in this turn; return True where that was all of it. Raises the error of a step."""
        ends = self.clock() + self._turn_s_max
        while not step():
            if self.clock() >= ends:
                return False
        return True

    def add(self, step: Step) -> None:
        """Take the steps of a work in the next turns. A step raises nothing."""
        self._works.append(step)
        self._plan()

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        if self._works:
            self.run(self._next_step)
            self._after()
        if self._works:
            self._plan()

    def _next_step(self) -> bool:
        step = self._works.popleft()
        if not step():
            self._works.append(step)
        return not self._works

    def close(self) -> None:
        """Take no other step."""
        self._works.clear()
