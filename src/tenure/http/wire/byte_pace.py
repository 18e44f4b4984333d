"""The least rate of a transfer: a least number of bytes within any window, also after many have moved before it.

An allowance that grows with what has come would let a peer send much at once and then stop. Time counts only between
two looks that both found bytes free to move; a wait that the server causes is not counted.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Pace"]

_MARKS = 8
"""Marks within one window: a peer that stops is noticed an eighth of the window late at most."""


class Pace:
    """The rate of one transfer. ``now_s`` is when it began, ``moved_bytes`` how many bytes had moved by then."""

    __slots__ = ("_elapsed_s", "_marks", "_seen_s")

    def __init__(self, now_s: float, moved_bytes: int = 0) -> None:
        self._seen_s = now_s
        self._elapsed_s = 0.0
        self._marks = deque([(0.0, moved_bytes)])

    def too_slow(self, now_s: float, moved_bytes: int, *, window_ms: int, bytes_per_s_min: int) -> bool:
        """Return whether too few bytes moved within the last window. ``moved_bytes`` counts from the beginning."""
        self._elapsed_s += max(0.0, now_s - self._seen_s)
        self._seen_s = now_s
        marks, window_s = self._marks, window_ms / 1000
        while len(marks) > 1 and marks[1][0] < self._elapsed_s - window_s:
            marks.popleft()
        since_s, before = marks[0]
        if self._elapsed_s - since_s > window_s and moved_bytes - before < bytes_per_s_min * window_s:
            return True
        if self._elapsed_s - marks[-1][0] >= window_s / _MARKS:
            marks.append((self._elapsed_s, moved_bytes))
        return False

    def skip(self, now_s: float) -> None:
        """Do not count the time since the last look."""
        self._seen_s = now_s
