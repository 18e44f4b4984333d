"""Outages of the store, as a producer meets them, and how long each of its batches bears them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.clock import Clock
from tenure.errors import Overloaded

__all__ = ["CommitTime", "DeliveryTime", "Outage", "not_written"]


class Outage:
    """The present outage: it begins with a call that the store does not answer, and ends with one that it answers."""

    def __init__(self, metrics: BufferMetrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._since_s: float | None = None

    def failed(self, took_s: float) -> None:
        """Note a call that was not answered, and how long it took."""
        if self._since_s is None:
            self._since_s = asyncio.get_running_loop().time() - took_s
            self._metrics.away_since_ms = self._clock.wall_ms() - round(took_s * 1000)

    def answered(self) -> None:
        """Note a call that was answered."""
        self._since_s, self._metrics.away_since_ms = None, 0

    def lasted_s(self, since_s: float) -> float:
        """Return how long it has lasted, counted from that time of the loop at the earliest; 0 if there is none."""
        if self._since_s is None:
            return 0.0
        return asyncio.get_running_loop().time() - max(self._since_s, since_s)


class DeliveryTime:
    """The `RetryTime` of one batch, from when it was sealed: ``delivery_timeout_ms`` of failures.

    Failed attempts count, and the waits after them; waiting for its turn and slow but successful calls do not, so that
    a slow uplink fails nothing. An outage counts also while the batch waits for its turn: otherwise a long queue would
    fail one batch after the other. Of an attempt that moved bytes, at most ``request_timeout_ms`` counts: it was given
    the rest for a slow uplink, and a large batch would bear one failure only.
    """

    def __init__(self, outage: Outage, settings: BufferSettings) -> None:
        self._outage = outage
        self._within_s = settings.delivery_timeout_ms / 1000
        self._attempt_s_max = settings.request_timeout_ms / 1000
        self._sealed_s = asyncio.get_running_loop().time()
        self._spent_s = 0.0

    @property
    def is_over(self) -> bool:
        return max(self._spent_s, self._outage.lasted_s(self._sealed_s)) >= self._within_s

    def failed(self, took_s: float) -> None:
        counted_s = min(took_s, self._attempt_s_max)
        self._spent_s += counted_s
        self._outage.failed(counted_s)

    def waited(self, wait_s: float) -> None:
        self._spent_s += wait_s

    def answered(self) -> None:
        self._outage.answered()


class CommitTime:
    """The `RetryTime` of a commit: what it takes counts for each of its batches, and it is over with the first."""

    def __init__(self, times: Iterable[DeliveryTime]) -> None:
        self._times = tuple(times)

    @property
    def is_over(self) -> bool:
        return any(time.is_over for time in self._times)

    def failed(self, took_s: float) -> None:
        for time in self._times:
            time.failed(took_s)

    def waited(self, wait_s: float) -> None:
        for time in self._times:
            time.waited(wait_s)

    def answered(self) -> None:
        for time in self._times:
            time.answered()


def not_written(why: object = "it has not answered since they were produced") -> Overloaded:
    """Return the error of a batch that is given up before any commit of it was sent."""
    return Overloaded(
        f"the store did not answer for delivery_timeout_ms: {why}. Nothing of these entries was committed, or will be: "
        "produce them again",
        code="not_written",
    )
