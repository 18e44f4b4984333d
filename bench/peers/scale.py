"""How much a run measures: every count and time of the harness, in one place."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["FULL", "PAYLOAD_BYTES", "QUICK", "Scale"]

PAYLOAD_BYTES: Final = 256


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one run. A cell ends at its count or at its time, whichever comes first."""

    rounds: int = 5
    jobs_max: int = 100_000
    """Jobs that one round of one cell puts at most."""
    seconds: float = 2.0
    """How long one round of one cell puts or claims at most."""
    connections: int = 32
    """Producers of the concurrent cell."""
    latency_seconds: float = 6.0
    latency_per_s: int = 500
    """Open-loop rate of the end-to-end latency."""
    queued: int = 1_000_000
    """Jobs in the queue where memory and restart are measured."""
    queued_rounds: int = 3
    """Rounds that measure it, at most: filling a queue takes minutes with some peers."""
    tasks: int = 20_000
    tasks_seconds: float = 6.0
    """How many tasks are queued for a worker, and how long it is watched at most."""
    idle_puts: int = 200
    """Tasks put one by one to an idle worker."""
    calibration_seconds: float = 0.3
    looks_max: int = 30
    """Looks, a second each, for which servers that start or tidy up may keep the machine busy before a group."""


FULL: Final = Scale()
QUICK: Final = Scale(
    rounds=1,
    jobs_max=5_000,
    seconds=0.4,
    latency_seconds=1.5,
    queued=20_000,
    tasks=1_000,
    tasks_seconds=4.0,
    idle_puts=30,
    calibration_seconds=0.1,
)
