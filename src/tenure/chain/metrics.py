"""Figures of a leader since its start: its links, how long each took, and what its home has not got yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenure.chain.link import Link
from tenure.clock import Clock
from tenure.histogram import Histogram

__all__ = ["LINK_KINDS", "ChainMetrics", "Waiting"]

PUT_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LINK_KINDS: Final = ("data", "beat", "fence", "released")


class ChainMetrics:
    """Totals of one leadership.

    ``put_s`` is the time from the first attempt of a link to its known outcome; ``fenced`` is 1 once another process
    took over.
    """

    __slots__ = ("diverged_bytes", "fenced", "link_bytes", "links", "put_repeats", "put_s")

    def __init__(self) -> None:
        self.link_bytes = self.put_repeats = self.diverged_bytes = self.fenced = 0
        self.links = dict.fromkeys(LINK_KINDS, 0)
        self.put_s = Histogram(PUT_BOUNDS_S)

    def count_fence(self) -> None:
        """Count a fence with which this process began an epoch."""
        self.links["fence"] += 1

    def count_link(self, link: Link, size_bytes: int, took_s: float) -> None:
        """Count a link that the home has."""
        self.links["released" if link.is_released else "data" if link.runs else "beat"] += 1
        self.link_bytes += size_bytes
        self.put_s.observe(took_s)

    def counting(self, is_over: Callable[[], bool]) -> Callable[[], bool]:
        """Return ``is_over``, which is asked before each repeat of a create, so that the repeats are counted."""

        def ask() -> bool:
            is_now_over = is_over()
            self.put_repeats += not is_now_over
            return is_now_over

        return ask


class Waiting:
    """Since when the oldest batch that is not in the home has waited, to within one link."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        #: What ``_since_ms`` becomes with the end of the link under way: what it leaves was written after it began.
        self._next_ms: int | None = None

    def written(self) -> None:
        """Record that a batch was written."""
        if self._since_ms is None:
            self._since_ms = self._clock.boot_ms()

    def begun(self, *, takes_all: bool) -> None:
        """Record that a link begins, with all batches that wait or with the first of them."""
        self._next_ms = self._clock.boot_ms() if takes_all else self._since_ms

    def ended(self, *, leaves_any: bool) -> None:
        """Record that a link is in the home."""
        self._since_ms = self._next_ms if leaves_any else None

    @property
    def age_ms(self) -> int:
        """How long the oldest batch has waited; 0 where none does."""
        return 0 if self._since_ms is None else max(0, self._clock.boot_ms() - self._since_ms)
