"""Counters and histograms of the broker, for any exporter."""

from __future__ import annotations

from typing import Final

from tenure.histogram import Histogram

__all__ = ["Metrics"]

LATENCY_BOUNDS_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)
SIZE_BOUNDS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)


class Metrics:
    """Totals since the broker was opened.

    >>> from tenure.broker import Metrics
    >>> metrics = Metrics()
    >>> metrics.produced, metrics.as_dict()["acked"]
    (0, 0)
    """

    __slots__ = (
        "acked",
        "batch_frames",
        "begun",
        "claimed",
        "dead_lettered",
        "deleted",
        "evicted",
        "expired",
        "extended",
        "forwarded",
        "lost",
        "nacked",
        "produced",
        "redriven",
        "returned",
        "sync_ms",
        "syncs",
    )

    def __init__(self) -> None:
        self.produced = self.claimed = self.acked = self.nacked = self.extended = self.expired = 0
        self.lost = self.returned = self.begun = 0
        self.dead_lettered = self.redriven = self.deleted = self.evicted = self.forwarded = self.syncs = 0
        self.sync_ms = Histogram(LATENCY_BOUNDS_MS)
        self.batch_frames = Histogram(SIZE_BOUNDS)

    def as_dict(self) -> dict[str, int]:
        """Return the totals by name, without histograms."""
        return {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), int)}
