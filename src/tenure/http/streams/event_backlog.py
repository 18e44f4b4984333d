"""The backlog of lifecycle events: rows encoded once, numbered, bounded by their bytes."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tenure.contract.replies import Lifecycle
from tenure.errors import Invalid
from tenure.http.api.render import encode
from tenure.http.streams import sse

__all__ = ["GAP", "TAKE_ROWS", "Backlog", "Reaches", "Row"]

GAP: Final = b"gap"
TAKE_ROWS: Final = 256
"""How many rows are written or read together."""
_ROW_BYTES: Final = 200
_OTHERS: Final = ("dest", "origin")

Reaches = Callable[[str], bool]
"""Whether a reader may see the name of a topic."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row, encoded; ``other`` is the other topic that it names, if it does, as ``dest`` or ``origin``."""

    topic: str
    event: bytes
    data: bytes
    other: str | None = None

    @classmethod
    def of(cls, row: Lifecycle) -> Row:
        """Return a row of the broker, encoded."""
        return cls(row.topic, row.event.encode(), encode(row), row.dest or row.origin)

    def shown(self, reaches: Reaches) -> bytes:
        """Return the row for a reader, without the name of a topic that it does not reach."""
        if self.other is None or reaches(self.other):
            return self.data
        kept = {name: value for name, value in msgspec.json.decode(self.data).items() if name not in _OTHERS}
        return encode(kept)


class Backlog:
    """Every row of the recent past; ``bytes_max`` bounds what is kept. Rows are numbered from 1 on."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.next = 1
        self._life = secrets.token_hex(4)
        self._prefix = f"{self._life}-".encode()
        self._rows: deque[Row] = deque()

    @property
    def first(self) -> int:
        """The number of the oldest row that is kept."""
        return self.next - len(self._rows)

    def add(self, row: Row) -> int:
        """Keep a row, drop the oldest ones that are too much; return its number."""
        number = self.next
        self._rows.append(row)
        self.next += 1
        self.bytes += len(row.data) + _ROW_BYTES
        while self.bytes > self.bytes_max:
            self.bytes -= len(self._rows.popleft().data) + _ROW_BYTES
        return number

    def clear(self) -> None:
        """Drop all rows. A reader that comes back with an older id finds a gap."""
        self._rows.clear()
        self.bytes = 0
        self.next += 1

    def take(self, topic: str, position: int, *, reaches: Reaches) -> tuple[list[bytes], int]:
        """Return the frames of a topic from a position on, and the position after them."""
        frames: list[bytes] = []
        while position < self.next and len(frames) < TAKE_ROWS:
            row = self._rows[position - self.next]
            if row.topic == topic:
                frames.append(self.frame(row, position, reaches=reaches))
            elif row.event == GAP:
                frames.append(self.gap(topic, "overrun", number=position))
            position += 1
        return frames, position

    def frame(self, row: Row, number: int, *, reaches: Reaches) -> bytes:
        """Return the frame of a row for a reader."""
        return sse.frame(row.event, row.shown(reaches), event_id=self.row_id(number))

    def gap(self, topic: str, reason: str, *, number: int) -> bytes:
        """Return the frame that stands for rows which are not kept any more, up to and with that number."""
        return sse.frame(GAP, encode({"topic": topic, "reason": reason}), event_id=self.row_id(number))

    def row_id(self, number: int) -> bytes:
        """Return the id of a row."""
        return b"%b%d" % (self._prefix, number)

    def number_of(self, last_id: str) -> int:
        """Return the number of the row of an id, -1 for one of an earlier backlog. Raises Invalid for any other."""
        life, dash, number = last_id.partition("-")
        if not dash or not life or not (number.isascii() and number.isdigit()) or len(number) > 18:
            raise Invalid("this Last-Event-ID was on no row: leave it out", field="last-event-id")
        return int(number) if life == self._life and int(number) < self.next else -1
