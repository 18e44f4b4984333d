"""Durability levels: how far a write must have come before its caller is answered."""

from __future__ import annotations

from typing import Final

from tenure.contract.config import TopicConfig

__all__ = ["LEVELS", "Level", "lease_level"]


class Level:
    """The levels of a batch, in order: appended, written, synced. Plain ints, because every command compares them."""

    NOW: Final = 0
    WRITTEN: Final = 1
    SYNCED: Final = 2


LEVELS: Final[dict[str, int]] = {
    "memory": Level.NOW,
    "disk": Level.WRITTEN,
    "fsync": Level.SYNCED,
    "replicated": Level.SYNCED,
}
"""The level that each durability class asks of a write."""


_LEASE_LEVELS: Final = {name: min(level, Level.WRITTEN) for name, level in LEVELS.items()}


def lease_level(config: TopicConfig) -> int:
    """Return the level that an answer about a lease waits for: a sync only where leases are durable, else a write."""
    return Level.SYNCED if config.leases_durable else _LEASE_LEVELS[config.durability]
