"""Back-off of a failed job before its next delivery: `Exponential` and `Fixed`. The broker uses the same rule."""

from __future__ import annotations

from typing import Final, Protocol

from tenure.contract.config import Backoff
from tenure.contract.fields import FACTOR_MAX
from tenure.core.backoff import delay_ms
from tenure.durations import Duration, ms_of
from tenure.errors import Invalid

__all__ = ["DELAY_MS_MAX", "BackoffRule", "Exponential", "Fixed"]

DELAY_MS_MAX: Final = 86_400_000
"""The longest delay that a broker takes with a nack."""


class BackoffRule(Protocol):
    """The interface of a task's ``backoff``."""

    def delay_ms(self, failures: int, *, seq: int) -> int:
        """Return how long job ``seq`` waits after it failed for the ``failures``-th time, counted from 1."""
        ...


class Exponential:
    """Wait ``min`` after the first failure, ``factor`` times as long after each further one, at most ``max``.

    ``jitter`` spreads each wait over its upper half, so that jobs that failed together do not return together.

    >>> from tenure import Exponential
    >>> backoff = Exponential("1s", "5s", jitter=False)
    >>> [backoff.delay_ms(failures, seq=1) for failures in (1, 2, 3, 4)]
    [1000, 2000, 4000, 5000]
    """

    def __init__(self, min: Duration = "1s", max: Duration = "5m", *, factor: float = 2.0, jitter: bool = True) -> None:
        min_ms = ms_of(min, field="backoff min", max_ms=DELAY_MS_MAX)
        max_ms = ms_of(max, field="backoff max", min_ms=min_ms, max_ms=DELAY_MS_MAX)
        if not 1 <= factor <= FACTOR_MAX:
            raise Invalid(f"backoff factor must be a number from 1 to {FACTOR_MAX:g}", field="factor")
        self._rule = Backoff(min_ms=min_ms, max_ms=max_ms, factor=float(factor), jitter=jitter)

    def delay_ms(self, failures: int, *, seq: int) -> int:
        return delay_ms(self._rule, deliveries=failures, seq=seq)

    def __repr__(self) -> str:
        rule = self._rule
        return f"Exponential({rule.min_ms}, {rule.max_ms}, factor={rule.factor:g}, jitter={rule.jitter})"


class Fixed:
    """Wait the same time after every failure.

    >>> from tenure import Fixed
    >>> Fixed("30s").delay_ms(3, seq=1)
    30000
    """

    def __init__(self, delay: Duration) -> None:
        self._delay_ms = ms_of(delay, field="backoff delay", max_ms=DELAY_MS_MAX)

    def delay_ms(self, failures: int, *, seq: int) -> int:
        return self._delay_ms

    def __repr__(self) -> str:
        return f"Fixed({self._delay_ms})"
