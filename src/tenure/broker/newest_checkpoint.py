"""The newest checkpoint that a log can go on from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from tenure.core.state.snapshot import load_checkpoint
from tenure.core.state.state import State
from tenure.errors import Corrupt
from tenure.log.interface import Position

__all__ = ["newest_state"]


def newest_state(
    checkpoints: Iterable[tuple[Position, bytes]], contains: Callable[[Position], bool]
) -> tuple[State, Position] | None:
    """Return the state of the newest checkpoint whose position the log contains, and that position; None without one.

    A checkpoint is only a cache: one that cannot be read is passed over.
    """
    for position, payload in checkpoints:
        if contains(position):
            try:
                return load_checkpoint(payload), position
            except (Corrupt, msgspec.MsgspecError):
                continue
    return None
