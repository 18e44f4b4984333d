"""Work of many steps, in turns of the loop of bounded length: between two turns the loop serves everything else."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["LongWork", "Step"]

Step = Callable[[], bool]
"""Do a bounded part of some work; return True when all of it is done."""


class LongWork:
    """The works that are under way. Each gets a step in turn, until ``turn_ms_max`` of this turn are used up.

    ``after`` is called at the end of each turn. ``clock_ms`` measures a turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        turn_ms_max: int,
        clock_ms: Callable[[], float],
        after: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._turn_ms_max = turn_ms_max
        self._after = after
        self._works: deque[Step] = deque()
        self._is_planned = False
        self.clock_ms = clock_ms

    def __len__(self) -> int:
        return len(self._works)

    def run(self, step: Step) -> bool:
        """Take steps of a work in this turn; return True where that was all of it. Raises the error of a step."""
        is_over = self.begin_turn()
        while not step():
            if is_over():
                return False
        return True

    def begin_turn(self) -> Callable[[], bool]:
        """Return a function that says whether the time of a turn that begins now is used up."""
        ends_ms = self.clock_ms() + self._turn_ms_max
        return lambda: self.clock_ms() >= ends_ms

    def add(self, step: Step) -> None:
        """Take the steps of a work in the next turns. One whose step raises is reported to the loop, and ends."""
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
        try:
            if not step():
                self._works.append(step)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a step of the broker failed", "exception": error})
        return not self._works

    def close(self) -> None:
        """Take no other step."""
        self._works.clear()
