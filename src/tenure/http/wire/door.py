"""The door: what is refused before it is anybody's has one small allowance of the loop's time, all of it together.

A request without a valid key, and bytes that are no request, cost time that no caller can be charged with, and a turn
of `FairTurns` for each connection would be a turn for each connection that a stranger opens. So the time that they take
is charged here, and beyond the allowance their answers wait; who waits for an answer is not read meanwhile.

- **Nobody else waits here**: not a request with a valid key, whatever its answer is and from whatever address it comes,
  and on a server without keys none that is well-formed.
- **Time is measured and charged afterwards**, as in fair turns, so the allowance may be overdrawn by what one
  connection had sent; the debt is paid before the next answer leaves.
- Addresses are served in turn, and the answers of one address in their order: an address with a thousand waiting
  delays its own. At most ``refused_waiting_max`` wait: a connection that is not read is not seen to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final

from tenure.http.wire.limits import WireLimits

__all__ = ["Door"]

Step = Callable[[], object]
_STEP_S: Final = 0.001
"""The shortest time between two looks at those who wait."""


class Door:
    """The allowance, and the answers that wait for it. ``left_s`` is what it holds; below zero it is overdrawn."""

    def __init__(
        self, limits: WireLimits, *, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._share = limits.refused_ms_per_s / 1000
        self._left_s_max = self.left_s = limits.refused_burst_ms / 1000
        self._loop = loop
        self._clock = clock
        self._filled_s = self._charged_s = clock()
        self._waiting_max = limits.refused_waiting_max
        self._count = 0
        self._lines: dict[str, dict[Step, Step]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def lets_through(self, address: str, leave: Step, *, cut: Step) -> bool:
        """Return whether an answer may leave at once; else ``leave`` is called when it may, unless it gives up, or
        ``cut`` where too many wait.
        """
        if not self._lines and self._filled() >= 0:
            return True
        self._lines.setdefault(address, {})[leave] = cut
        self._count += 1
        self._look_later()
        if self._count > self._waiting_max:
            self._take(max(self._lines, key=lambda one: len(self._lines[one])))[1]()
        return False

    def give_up(self, address: str, leave: Step) -> None:
        """Take an answer out of the line: nobody waits for it any more, or it leaves now."""
        line = self._lines.get(address)
        if line is not None and leave in line:
            del line[leave]
            self._count -= 1
            if not line:
                del self._lines[address]

    def _take(self, address: str) -> tuple[Step, Step]:
        """Take out the answer of an address that has waited longest, and put the others behind the other addresses."""
        line = self._lines.pop(address)
        leave = next(iter(line))
        cut = line.pop(leave)
        self._count -= 1
        if line:
            self._lines[address] = line
        return leave, cut

    def spend(self, began_s: float) -> None:
        """Charge the time since then; of one step within another the time counts once."""
        now_s = self._clock()
        self.left_s -= now_s - max(began_s, self._charged_s)
        self._charged_s = now_s

    def _filled(self) -> float:
        now_s = self._clock()
        self.left_s = min(self.left_s + (now_s - self._filled_s) * self._share, self._left_s_max)
        self._filled_s = now_s
        return self.left_s

    def _look_later(self) -> None:
        if self._timer is None and self._lines:
            self._timer = self._loop.call_later(max(-self.left_s / self._share, 0.0) + _STEP_S, self._look)

    def _look(self) -> None:
        """Let those through for whom there is time again."""
        self._timer = None
        try:
            while self._lines and self._filled() >= 0:
                self._serve_next()
        finally:
            self._look_later()

    def _serve_next(self) -> None:
        leave, _ = self._take(next(iter(self._lines)))
        began_s = self._clock()
        try:
            leave()
        finally:
            self.spend(began_s)
