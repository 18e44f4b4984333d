"""A histogram of a few buckets, for any exporter."""

from __future__ import annotations

from bisect import bisect_left

__all__ = ["Histogram"]


class Histogram:
    """Counts by bucket; ``bounds`` are upper limits, and one more bucket takes what lies above.

    >>> from tenure.broker import Histogram
    >>> latency_ms = Histogram((1, 10, 100))
    >>> latency_ms.observe(5)
    >>> latency_ms.count, latency_ms.counts
    (1, [0, 1, 0, 0])
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """Count a value, as often as it weighs."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def quantile(self, share: float) -> float | None:
        """Return the value below which that share lies, interpolated within its bucket; None for an empty histogram.

        For a share above the last bound, return that bound: no more is known.
        """
        wanted = share * self.count
        if not wanted:
            return None
        below, seen = 0.0, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= wanted:
                return below + (bound - below) * (wanted - seen) / count
            below, seen = bound, seen + count
        return below

    @property
    def count(self) -> int:
        return sum(self.counts)
