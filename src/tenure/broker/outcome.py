"""What a command produced, and what its answer has to wait for."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["LEVELS", "Level", "Outcome"]

T = TypeVar("T")


class Level:
    """How far a batch must have come before the caller hears of it. Plain numbers: they are compared for every command."""

    NOW: Final = 0
    WRITTEN: Final = 1
    SYNCED: Final = 2


LEVELS: Final[dict[str, int]] = {"memory": Level.NOW, "disk": Level.WRITTEN, "fsync": Level.SYNCED}
"""What a topic's durability class asks of a write."""


class Outcome(NamedTuple, Generic[T]):
    """A reply that may be given once ``batch`` has reached ``level``."""

    reply: T
    batch: int
    level: int
