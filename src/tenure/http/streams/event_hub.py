"""The hub of lifecycle events: one subscription to the broker for all readers, and a bounded backlog.

Rows are encoded once and kept for all readers, so a reader has a place in them and no buffer of its own (fault 33). A
reader that comes back with the id of the last row it saw continues after it; where that row is no longer kept, it gets
a gap (fault 32). The backlog is in memory only: it begins with the first reader, ends a while after the last one has
gone, and does not survive a restart.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tenure.broker.broker import Broker
from tenure.broker.serving.streams import Subscription
from tenure.contract.replies import Lifecycle
from tenure.errors import Closed, Invalid, Overloaded
from tenure.http.api.render import encode
from tenure.http.streams import sse

__all__ = ["Hub", "Place"]

_ROW_BYTES: Final = 200
_TAKE_ROWS: Final = 256
_GAP: Final = b"gap"
_OTHERS: Final = ("dest", "origin")
Reaches = Callable[[str], bool]
_REST_S: Final = 0.02
"""A row that comes alone is passed on at once, and what follows it soon goes together: thousands of rows a second are
fifty wakes here, fifty writes for each reader and fifty pieces for it to take in."""


class _Row(msgspec.Struct, frozen=True, gc=False):
    """One row, encoded; ``other`` is the other topic that it names, if it does, as ``dest`` or ``origin``."""

    topic: str
    event: bytes
    data: bytes
    other: str | None = None

    def shown(self, reaches: Reaches) -> bytes:
        """Return the row for a reader, without the name of a topic that it does not reach."""
        if self.other is None or reaches(self.other):
            return self.data
        kept = {name: value for name, value in msgspec.json.decode(self.data).items() if name not in _OTHERS}
        return encode(kept)


class Hub:
    """Every row of the recent past, numbered; ``backlog_bytes_max`` bounds it, ``linger_s`` is how long it is kept
    after the last reader has gone.
    """

    def __init__(self, broker: Broker, *, backlog_bytes_max: int = 8 << 20, linger_s: float = 60) -> None:
        self._broker = broker
        self._bytes_max = backlog_bytes_max
        self._linger_s = linger_s
        self._life = secrets.token_hex(4)
        self._prefix = f"{self._life}-".encode()
        self._rows: deque[_Row] = deque()
        self._bytes = 0
        self._next = 1
        self._places: dict[str, set[Place]] = {}
        self._subscription: Subscription | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._stop: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def first(self) -> int:
        """The number of the oldest row that is kept."""
        return self._next - len(self._rows)

    def open(self, topic: str, *, after: int | None = None, reaches: Reaches = lambda name: True) -> Place:
        """Follow a topic from now on, or after a row. ``reaches`` says which other topics may be named."""
        self._start()
        place = Place(self, topic, position=self._next if after is None else after + 1, reaches=reaches)
        self._places.setdefault(topic, set()).add(place)
        return place

    def mark(self) -> str:
        """Return the id of the newest row: a caller that reads the broker's state now and follows after this row misses
        nothing and gets nothing twice. Call it in the same turn of the loop as the read.
        """
        self._start()
        assert self._subscription is not None
        for row in self._subscription.drain():
            self._keep(row)
        self._rest()
        return self.row_id(self._next - 1).decode()

    def number_of(self, last_id: str) -> int:
        """Return the number of the row of an id, -1 for one of an earlier backlog. Raises Invalid for any other."""
        life, dash, number = last_id.partition("-")
        if not dash or not life or not (number.isascii() and number.isdigit()) or len(number) > 18:
            raise Invalid("this Last-Event-ID was on no row: leave it out", field="last-event-id")
        return int(number) if life == self._life and int(number) < self._next else -1

    def gap(self, topic: str, reason: str, *, number: int) -> bytes:
        """Return the frame that stands for rows which are not kept any more, up to and with that number."""
        return sse.frame(_GAP, encode({"topic": topic, "reason": reason}), event_id=self.row_id(number))

    def row_id(self, number: int) -> bytes:
        """Return the id of a row."""
        return b"%b%d" % (self._prefix, number)

    def close(self, place: Place) -> None:
        """Remove a reader; after the last one the rows are kept for a while."""
        places = self._places.get(place.topic, set())
        places.discard(place)
        if not places:
            self._places.pop(place.topic, None)
        self._rest()

    def _rest(self) -> None:
        """Keep the rows for a while where there is no reader, then drop them."""
        if not self._places and self._pumping is not None and self._stop is None:
            self._stop = asyncio.get_running_loop().call_later(self._linger_s, self._end)

    def take(self, topic: str, position: int, *, reaches: Reaches) -> tuple[list[bytes], int]:
        """Return the frames of a topic from a position on, and the position after them."""
        frames: list[bytes] = []
        while position < self._next and len(frames) < _TAKE_ROWS:
            row = self._rows[position - self._next]
            if row.topic == topic:
                frames.append(sse.frame(row.event, row.shown(reaches), event_id=self.row_id(position)))
            elif row.event == _GAP:
                frames.append(self.gap(topic, "overrun", number=position))
            position += 1
        return frames, position

    def _start(self) -> None:
        if self._stop is not None:
            self._stop.cancel()
            self._stop = None
        if self._pumping is None:
            self._subscription = self._broker.events()
            self._pumping = asyncio.ensure_future(self._pump(self._subscription))

    def _end(self) -> None:
        """Drop the backlog and the subscription, because no reader came back: the engine need not report any more."""
        self._stop = None
        if self._pumping is not None and self._subscription is not None:
            self._pumping.cancel()
            self._subscription.close()
        self._pumping = self._subscription = None
        self._rows.clear()
        self._bytes = 0
        self._next += 1  # so that a reader that comes back with an older id finds a gap

    async def _pump(self, subscription: Subscription) -> None:
        while True:
            try:
                async for row in subscription:
                    for one in (row, *subscription.drain()):
                        self._keep(one)
                    await asyncio.sleep(_REST_S)
                break
            except Overloaded:
                subscription = self._subscription = self._broker.events()
                self._add(_Row("", _GAP, b""))
                self._wake(*self._places)
        self.closed = True
        self._wake(*self._places)

    def _keep(self, row: Lifecycle) -> None:
        self._add(_Row(row.topic, row.event.encode(), encode(row), row.dest or row.origin))
        self._wake(row.topic)

    def _add(self, row: _Row) -> None:
        self._rows.append(row)
        self._next += 1
        self._bytes += len(row.data) + _ROW_BYTES
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._rows.popleft().data) + _ROW_BYTES

    def _wake(self, *topics: str) -> None:
        for topic in topics:
            for place in self._places.get(topic, ()):
                place.arrival.set()


class Place:
    """One reader's place among the rows."""

    __slots__ = ("_hub", "_position", "_reaches", "arrival", "topic")

    def __init__(self, hub: Hub, topic: str, *, position: int, reaches: Reaches) -> None:
        self.topic = topic
        self.arrival = asyncio.Event()
        self._hub = hub
        self._position = position
        self._reaches = reaches

    def take(self) -> list[bytes]:
        """Return what has come since the last call, as frames; a gap comes first. Raises Closed after the broker is."""
        frames: list[bytes] = []
        if self._position < self._hub.first:
            reason = "restarted" if self._position <= 0 else "overrun"
            self._position = self._hub.first
            frames.append(self._hub.gap(self.topic, reason, number=self._position - 1))
        rows, self._position = self._hub.take(self.topic, self._position, reaches=self._reaches)
        if not rows and not frames and self._hub.closed:
            raise Closed("the server stops: connect again", code="shutting_down")
        return frames + rows

    def close(self) -> None:
        """Stop reading."""
        self._hub.close(self)
