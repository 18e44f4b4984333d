"""Buckets: time in at most 120 steps, durations and deliveries in fixed classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "DELIVERIES",
    "DURATIONS_MS",
    "ENTRIES_SMALL_MAX",
    "POINTS_MAX",
    "RUN_CONF",
    "START_CONF",
    "deliveries_label",
    "step_ms_for",
]

POINTS_MAX: Final = 120
"""The most points of a plot over time, for any span."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS: Final = (
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 30)),
)

DURATIONS_MS: Final = (0, *(digit * 10**power for power in range(10) for digit in (1, 2, 5)))
"""Where the classes of a duration begin: 0, 1, 2, 5, 10, … ms, up to 5,000,000 s. The last one has no end."""

DELIVERIES: Final = (0, 1, 2, 3, 4, 5, 6, 11, 21, 51, 101)
"""Where the classes of a number of deliveries begin."""


def step_ms_for(first_ms: int, last_ms: int) -> int:
    """Return the smallest round step that cuts the time from first to last into at most POINTS_MAX points.

    Points begin at whole multiples of the step, so that a time may touch one more than it is long.
    """
    for step_ms in _STEPS_MS:
        if last_ms // step_ms - first_ms // step_ms < POINTS_MAX:
            return step_ms
    step_ms = _STEPS_MS[-1]
    while last_ms // step_ms - first_ms // step_ms >= POINTS_MAX:
        step_ms *= 2
    return step_ms


def deliveries_label(low: int) -> str:
    """Return the label of the class that begins at ``low``: ``3``, ``6–10``, ``over 100``."""
    place = DELIVERIES.index(low)
    if place == len(DELIVERIES) - 1:
        return f"over {low - 1}"
    high = DELIVERIES[place + 1] - 1
    return str(low) if high == low else f"{low}–{high}"


ENTRIES_SMALL_MAX: Final = 5_000
"""Up to so many entries one partition is enough, and interpreting is faster than compiling."""
START_CONF: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For the start of a session that makes one small report, where the user gave none of these."""
RUN_CONF: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For the session while it makes a small report."""
