"""Client marks: per ``client_id`` of a producer, its last ``client_seq`` and the seqs that this append got.

A mark outlives its records, so it is kept here and not derived from them. Marks lie in the order of their
last advance; log time never runs backwards, so the idle ones are always at the front and expiry looks at nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct
from typing import Final, Self

import msgspec

from tenure.errors import Corrupt

__all__ = ["MARK_IDLE_MS", "MARK_KEPT_MS", "ClientMarks", "Mark"]

MARK_IDLE_MS: Final = 7 * 24 * 3600 * 1000
"""A client mark that was not advanced for this long is forgotten."""
MARK_KEPT_MS: Final = 600_000
"""A mark advanced this recently never gives way to another client's: no producer repeats a call for so long."""

# One bytes object instead of four integers: 65 bytes a mark instead of 180.
_ROW: Final = Struct("<QQQQ")


class Mark(msgspec.Struct, frozen=True, gc=False):
    """A producer's last append: its number, the seqs it was given, and its log time."""

    last_client_seq: int
    first_seq: int
    last_seq: int
    at_ms: int


class ClientMarks:
    """The marks of one topic, about 225 bytes each; the caller bounds their number by ``len``."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, client_id: str) -> Mark | None:
        """Return the client's mark, or None if it has none; this does not count as an advance."""
        row = self._rows.get(client_id)
        return None if row is None else Mark(*_ROW.unpack(row))

    def advance(self, client_id: str, client_seq: int, *, first_seq: int, last_seq: int, at_ms: int) -> None:
        """Move the mark of a client to an append under ``client_seq``, which the caller has checked to be above it."""
        self._rows[client_id] = _ROW.pack(client_seq, first_seq, last_seq, at_ms)
        self._rows.move_to_end(client_id)

    def oldest(self) -> tuple[str, Mark] | None:
        """Return the client that has been idle for longest, with its mark, or None if there is none."""
        for client_id, row in self._rows.items():
            return client_id, Mark(*_ROW.unpack(row))
        return None

    def forget(self, client_id: str) -> None:
        """Drop a client's mark, if it has one."""
        self._rows.pop(client_id, None)

    def expire(self, before_ms: int) -> int:
        """Forget the marks last advanced before this log time; return how many."""
        rows, expired_count = self._rows, 0
        while rows:
            client_id, row = next(iter(rows.items()))
            if _ROW.unpack(row)[3] >= before_ms:
                break
            del rows[client_id]
            expired_count += 1
        return expired_count

    def dump(self) -> bytes:
        """Return all marks, in their order: equal marks advanced in the same order give equal bytes."""
        return msgspec.msgpack.encode((list(self._rows), b"".join(self._rows.values())))

    @classmethod
    def load(cls, dumped: bytes) -> Self:
        """Return the marks that ``dump`` wrote; raises Corrupt if it cannot have written this."""
        try:
            client_ids, packed = msgspec.msgpack.decode(dumped, type=tuple[list[str], bytes])
        except msgspec.MsgspecError as error:
            raise Corrupt(f"client marks cannot be read: {error}") from error
        rows = [packed[at : at + _ROW.size] for at in range(0, len(packed), _ROW.size)]
        if len(packed) != len(client_ids) * _ROW.size or len(set(client_ids)) != len(client_ids):
            raise Corrupt(f"client marks do not add up: {len(client_ids)} clients, {len(packed)} bytes")
        marks = cls()
        marks._rows.update(zip(client_ids, rows, strict=True))
        return marks
