"""Where the next sync runs: on the loop while the disk is fast, on a thread otherwise.

The way to a thread and back takes as long as a fast disk does, and longer while the loop is busy: the answer then waits
for its turn among everything else. So a small sync is waited for where it was asked for, as long as the syncs before it
were short. A disk that stalls holds the loop for one sync, and none of the next ones.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["InlineSync"]

_WINDOW: Final = 16
_SHORT_SHARE: Final = 3 / 4
_STALL_RATIO: Final = 20


class InlineSync:
    """Watches how long syncs take. ``short_us`` is the longest that counts as short; 0: no sync runs on the loop.

    Most of the last ones must have been short, and none a stall, which is one of twenty times that.
    """

    def __init__(self, short_us: int) -> None:
        self._short_us = short_us
        self._recent: deque[float] = deque(maxlen=_WINDOW)

    def observe(self, took_us: float) -> None:
        """Note how long the disk has taken for one sync."""
        self._recent.append(took_us)

    def is_due(self) -> bool:
        """Whether a small sync may run on the loop now."""
        short_us, recent = self._short_us, self._recent
        if len(recent) < _WINDOW or max(recent) > short_us * _STALL_RATIO:
            return False
        return sum(took_us <= short_us for took_us in recent) >= _WINDOW * _SHORT_SHARE
