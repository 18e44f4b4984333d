"""The hub of lifecycle events: one subscription to the broker for all readers, and a bounded backlog.

Rows are encoded once and kept for all readers, so a reader has a place in them and no buffer of its own (fault 33). To
readers that have read everything, new rows are written at once, in frames that all of them share; a reader that is
busy or slow is woken instead, and reads from its place on. A reader that comes back with the id of the last row it saw
continues after it; where that row is no longer kept, it gets a gap (fault 32). The backlog is in memory only: it begins
with the first reader, ends a while after the last one has gone, and does not survive a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Final

from tenure.broker.broker import Broker
from tenure.broker.serving.streams import Subscription
from tenure.contract.replies import Lifecycle
from tenure.errors import Closed, Overloaded
from tenure.http.streams.event_backlog import GAP, TAKE_ROWS, Backlog, Reaches, Row
from tenure.http.streams.forms import Forms
from tenure.http.streams.outlet import Outlet
from tenure.http.streams.slices import Slices
from tenure.http.wire.message import SharedBytes

__all__ = ["Hub", "Place"]

_EVERY_S: Final = 0.005
"""A row that comes alone is passed on at once, and what follows it sooner than this goes together: thousands of rows a
second are two hundred wakes here, two hundred writes for each reader and two hundred pieces for it to take in."""


class Hub:
    """All readers of lifecycle events and their backlog, of ``backlog_bytes_max`` at most; ``linger_s`` is how long it
    is kept after the last reader has gone.
    """

    def __init__(self, broker: Broker, *, backlog_bytes_max: int = 8 << 20, linger_s: float = 60) -> None:
        self.backlog = Backlog(backlog_bytes_max)
        self.closed = False
        self._broker = broker
        self._linger_s = linger_s
        self._places: dict[str, dict[Place, None]] = {}
        self._ends: dict[str, int] = {}
        """The number after the newest row of each topic that is read."""
        self._slices = Slices()
        self._subscription: Subscription | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._stop: asyncio.TimerHandle | None = None

    def open(
        self, topic: str, outlet: Outlet, *, after: int | None = None, reaches: Reaches = lambda name: True
    ) -> Place:
        """Follow a topic from now on, or after a row. ``reaches`` says which other topics may be named."""
        self._start()
        position = self.backlog.next if after is None else after + 1
        place = Place(self, topic, outlet, position=position, reaches=reaches)
        self._places.setdefault(topic, {})[place] = None
        self._ends.setdefault(topic, self.backlog.next)
        return place

    def mark(self) -> str:
        """Return the id of the newest row: a caller that reads the broker's state now and follows after this row misses
        nothing and gets nothing twice. Call it in the same turn of the loop as the read.
        """
        self._start()
        assert self._subscription is not None
        for fresh in self._keep(self._subscription.drain()):
            for place in self._places[fresh.topic]:
                fresh.begin(place)
                place.outlet.wake()
        self._rest()
        return self.backlog.row_id(self.backlog.next - 1).decode()

    def close(self, place: Place) -> None:
        """Remove a reader; after the last one the rows are kept for a while."""
        places = self._places.get(place.topic, {})
        places.pop(place, None)
        if not places:
            self._places.pop(place.topic, None)
            self._ends.pop(place.topic, None)
        self._rest()

    def _rest(self) -> None:
        """Keep the rows for a while where there is no reader, then drop them."""
        if not self._places and self._pumping is not None and self._stop is None:
            self._stop = asyncio.get_running_loop().call_later(self._linger_s, self._end)

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
        self.backlog.clear()

    async def _pump(self, subscription: Subscription) -> None:
        while True:
            try:
                async for row in subscription:
                    began_s = monotonic()
                    await self._spread(self._keep((row, *subscription.drain())))
                    await asyncio.sleep(began_s + _EVERY_S - monotonic())
                break
            except Overloaded:
                subscription = self._subscription = self._broker.events()
                self.backlog.add(Row("", GAP, b""))
                self._ends = dict.fromkeys(self._ends, self.backlog.next)
                self._wake_all()
        self.closed = True
        self._wake_all()

    def _keep(self, rows: Iterable[Lifecycle]) -> list[_Fresh]:
        """Add rows to the backlog; return those that are read, by their topics."""
        fresh: dict[str, _Fresh] = {}
        complete: list[_Fresh] = []
        for one in rows:
            row = Row.of(one)
            number = self.backlog.add(row)
            if row.topic not in self._places:
                continue
            if row.topic not in fresh:
                fresh[row.topic] = _Fresh(self.backlog, row.topic, since=self._ends[row.topic], first=number)
            fresh[row.topic].add(row, number)
            self._ends[row.topic] = number + 1
            if len(fresh[row.topic]) == TAKE_ROWS:
                complete.append(fresh.pop(row.topic))
        return [*complete, *fresh.values()]

    async def _spread(self, batches: list[_Fresh]) -> None:
        for fresh in batches:
            await self._slices.each(list(self._places.get(fresh.topic, ())), fresh.give)

    def _wake_all(self) -> None:
        for places in self._places.values():
            for place in places:
                place.outlet.wake()


class _Fresh:
    """Rows of one topic that have just come, numbered from ``first`` up to ``end``; the one before them ended at
    ``since``.
    """

    __slots__ = ("_backlog", "_rows", "_shared", "end", "first", "since", "topic")

    def __init__(self, backlog: Backlog, topic: str, *, since: int, first: int) -> None:
        self.topic = topic
        self.since = since
        self.first = first
        self.end = first
        self._backlog = backlog
        self._rows: list[tuple[int, Row]] = []
        self._shared = Forms[tuple[bool, ...], SharedBytes]()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row, number: int) -> None:
        """Add the next row."""
        self._rows.append((number, row))
        self.end = number + 1

    def begin(self, place: Place) -> bool:
        """Move a reader that has everything before these rows to their beginning; return False for any other."""
        if not self.since <= place.position <= self.first:
            return False
        place.position = self.first
        return True

    def give(self, place: Place) -> None:
        """Write the rows to a reader that has everything before them, or wake it to read by itself."""
        if self.begin(place) and place.outlet.offer(self._frames(place.reaches)):
            place.position = self.end
        elif place.position < self.end:
            place.outlet.wake()

    def _frames(self, reaches: Reaches) -> SharedBytes:
        """Return the frames for a reader, encoded once for all that may see the same names."""
        key = tuple([reaches(row.other) for _, row in self._rows if row.other is not None])
        shared = self._shared.get(key)
        if shared is None:
            frames = [self._backlog.frame(row, number, reaches=reaches) for number, row in self._rows]
            shared = self._shared.keep(key, SharedBytes(b"".join(frames)))
        return shared


class Place:
    """One reader's place among the rows: ``position`` is the number of the next one that it has not read."""

    __slots__ = ("_hub", "outlet", "position", "reaches", "topic")

    def __init__(self, hub: Hub, topic: str, outlet: Outlet, *, position: int, reaches: Reaches) -> None:
        self.topic = topic
        self.outlet = outlet
        self.position = position
        self.reaches = reaches
        self._hub = hub

    def take(self) -> list[bytes]:
        """Return what has come since the last call, as frames; a gap comes first. Raises Closed after the broker is."""
        frames: list[bytes] = []
        backlog = self._hub.backlog
        if self.position < backlog.first:
            reason = "restarted" if self.position <= 0 else "overrun"
            self.position = backlog.first
            frames.append(backlog.gap(self.topic, reason, number=self.position - 1))
        rows, self.position = backlog.take(self.topic, self.position, reaches=self.reaches)
        if not rows and not frames and self._hub.closed:
            raise Closed("the server stops: connect again", code="shutting_down")
        return frames + rows

    def close(self) -> None:
        """Stop reading."""
        self._hub.close(self)
