"""How far the rows of a log are told, also within a batch of it."""

from __future__ import annotations

from typing import NamedTuple

from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, list_heads

__all__ = ["Place", "first_position"]


class Place(NamedTuple):
    """Every row before ``position``, and the first ``rows`` rows of what follows it.

    One batch of the log may give more rows than one call to a buffer takes (a million leases that run out together),
    so a call may end between two of its rows.
    """

    position: Position
    rows: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Compares places of one log."""
        return self.position.batch, self.rows


def first_position(log: Disk) -> Position | None:
    """The beginning of the oldest segment; None where there is no log."""
    head = next(iter(list_heads(log)), None)
    return None if head is None else Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc)
