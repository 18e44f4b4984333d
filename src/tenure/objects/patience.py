"""How long an answer is waited for before the same request is sent again, on another connection."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Patience"]

_RECENT: Final = 8
_RATIO: Final = 2


class Patience:
    """The wait of one process for one store: ``least_ms``, or twice what the slowest of its last answers took.

    A connection may die without a word, as a router that forgot it drops its packets; the store answers every other
    one. A fixed time that is short would never let a slow store answer, a long one would let its caller stand still.
    """

    def __init__(self, least_ms: int) -> None:
        self._least_s = least_ms / 1000
        self._recent_s: deque[float] = deque(maxlen=_RECENT)

    @property
    def wait_s(self) -> float:
        """How long to wait for an answer, in seconds."""
        return max(self._least_s, _RATIO * max(self._recent_s, default=0.0))

    def answered(self, took_s: float) -> None:
        """Note how long an answer took, from when its own request was sent."""
        self._recent_s.append(took_s)
