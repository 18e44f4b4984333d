"""The rows of the export: one JSON document an entry, a lifecycle row of the broker and its place in the log.

``batch`` and ``n`` name a row for good: the same log gives the same rows under the same names, however often the
exporter was started. So a reader recognises a repeat even where two buffers were fed from one log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from tenure.contract.replies import Lifecycle
from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, list_heads

__all__ = ["TRIMMED_N", "Exported", "Place", "decode_row", "encode_row", "first_position", "gap", "history_n"]


class Place(NamedTuple):
    """A place between two rows: after everything before ``position``, and the first ``rows`` rows of what follows.

    One batch of the log may give more rows than one call to a buffer takes (a million leases that expire together), so
    a call may end between two of its rows.
    """

    position: Position
    rows: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Return the key that orders places of one log."""
        return self.position.batch, self.rows


def first_position(log: Disk) -> Position | None:
    """Return the beginning of the oldest segment; None where there is no log."""
    head = next(iter(list_heads(log)), None)
    return None if head is None else Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc)


TRIMMED_N: Final = -1
"""The number of a gap for trimmed batches: the last of them may have rows that are exported."""


class Exported(Lifecycle, frozen=True, omit_defaults=True, kw_only=True):
    """A lifecycle row as the buffer holds it. A ``gap`` names the batches whose events are missing."""

    batch: int
    n: int
    first_batch: int | None = None
    last_batch: int | None = None


_encode: Final = msgspec.json.Encoder().encode
decode_row: Final[Callable[[bytes], Exported]] = msgspec.json.Decoder(Exported).decode
"""Return the row in an entry. Raises msgspec.ValidationError for any other bytes."""


def encode_row(row: Lifecycle, *, batch: int, n: int) -> bytes:
    """Return one entry of the buffer."""
    return b'%b,"batch":%d,"n":%d}' % (_encode(row)[:-1], batch, n)


def history_n(ordinal: int) -> int:
    """Return the number of the gap that call ``ordinal`` reports: no row of either history has it, and no other gap."""
    return TRIMMED_N - 1 - ordinal


def gap(reason: str, *, ts: int, batch: int, n: int, topic: str = "", first_batch: int, last_batch: int) -> bytes:
    """Return the entry that reports events which were not exported, and why.

    ``trimmed``: the log was trimmed further than the exporter had come. ``history``: the log does not go through the
    place where the export stood. ``unknown_topic``: what is left of the log does not show yet whose an event is.
    """
    row = Exported(
        "gap", topic, ts, [], reason=reason, batch=batch, n=n, first_batch=first_batch, last_batch=last_batch
    )
    return _encode(row)
