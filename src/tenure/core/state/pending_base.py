"""The base of a topic of which a replay has not met all parts yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.core.events import Event

__all__ = ["PendingBase"]


class PendingBase:
    """The parts met so far, the events of the topic since it was begun, and the offset of the wall clock and the epoch
    by then.
    """

    __slots__ = ("epoch", "later", "parts", "wall_offset_ms")

    def __init__(self, wall_offset_ms: int, epoch: int) -> None:
        self.wall_offset_ms = wall_offset_ms
        self.epoch = epoch
        self.parts: list[bytes] = []
        self.later: list[tuple[Event, int]] = []
