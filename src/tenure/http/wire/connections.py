"""The registry of all connections: their number, their memory, their deadlines, and draining."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from time import time

import msgspec

from tenure.http.wire.bodies import Bodies
from tenure.http.wire.connection import Connection
from tenure.http.wire.door import Door
from tenure.http.wire.fair_turns import FairTurns
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.reading_turns import ReadingTurns
from tenure.http.wire.silent import Silent
from tenure.http.wire.unsent import Holder, Unsent

__all__ = ["Connections", "Counts", "over_cap_max"]


def over_cap_max(connections_max: int) -> int:
    """Return how many connections beyond the cap are answered 503; others are closed without a response."""
    return 16 + connections_max // 16


class Counts(msgspec.Struct):
    """Counters of the wire since the start."""

    accepted: int = 0
    requests: int = 0
    over_cap: int = 0
    silent_cut: int = 0
    refused: int = 0
    timed_out: int = 0
    slow_readers: int = 0
    floods: int = 0


class Connections:
    """The registry. One coarse timer serves every deadline: a timer per connection would cost more than the request.

    ``now_s`` is the loop's time at the last tick; deadlines are measured with it, so that a request reads no clock.
    """

    def __init__(self, limits: WireLimits, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.limits = limits
        self.counts = Counts()
        self.bodies = Bodies(limits)
        self.unsent = Unsent(limits)
        self._silent = Silent(limits)
        self.draining = False
        self.connections_max = limits.connections_max
        self._loop = loop or asyncio.get_running_loop()
        self.fair = FairTurns(limits.share_ms, loop=self._loop)
        self.reading = ReadingTurns(limits.turn_ms, loop=self._loop)
        self.lingering = ReadingTurns(limits.turn_ms, loop=self._loop, rest_ms=limits.linger_rest_ms)
        self.door = Door(limits, loop=self._loop)
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()
        self.now_s = self._loop.time()
        self.date = b""
        self._stamp()

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Start the timer."""
        self._timer = self._loop.call_later(self.limits.tick_ms / 1000, self._on_timer)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self.start()
        self.tick(self._loop.time())

    def tick(self, now_s: float) -> None:
        """Let every connection check its deadlines as of ``now_s``."""
        self.now_s = now_s
        self._stamp()
        for connection in list(self._open):
            connection.tick(now_s)

    def _stamp(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(time(), usegmt=True).encode()

    def add(self, connection: Connection, peer: str) -> bool:
        """Take in a connection that was just accepted; it is silent until `mark_heard`.

        Where there are too many, the one that has been silent for longest is cut. Return False where there is no room:
        refuse the connection and close it.
        """
        self.counts.accepted += 1
        has_room = not self.is_full or self.cut_silent()
        self._open.add(connection)
        surplus = self._silent.add(connection, peer)
        if surplus is not None:
            self._cut(surplus)
        self.counts.over_cap += not has_room
        return has_room

    def cut_silent(self) -> bool:
        """Cut the connection that has been silent for longest; return False where none is silent."""
        oldest = self._silent.oldest()
        if oldest is not None:
            self._cut(oldest)
        return oldest is not None

    def _cut(self, silent: Connection) -> None:
        self.counts.silent_cut += 1
        self._silent.discard(silent)
        silent.abort()

    @property
    def is_full(self) -> bool:
        """Whether there are as many as are allowed: one more takes the place of a silent one, or is refused."""
        return len(self._open) >= self.connections_max

    @property
    def crowded(self) -> bool:
        """Whether there are so many beyond the cap that not even a refusal is sent any more."""
        return len(self._open) >= self.connections_max + over_cap_max(self.connections_max) and not self._silent

    def mark_heard(self, connection: Connection) -> None:
        """Record that a connection has sent its first whole head: it is not silent any more."""
        self._silent.discard(connection)

    def discard(self, connection: Connection) -> None:
        """Remove a connection that is gone."""
        self._silent.discard(connection)
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()

    def replace(self, old: Connection, new: Connection) -> None:
        """Replace a connection by another object on the same socket, for another protocol."""
        self._open.discard(old)
        self._open.add(new)
        self._silent.replace(old, new)

    def note_unsent(self, holder: Holder) -> None:
        """Count what a connection keeps for its peer, and cut peers where all of them together keep too much."""
        self.counts.slow_readers += self.unsent.note(holder, self.now_s)

    async def drain(self, deadline_s: float) -> bool:
        """End every connection within ``deadline_s`` seconds; return True where all ended by themselves."""
        self.draining = True
        self._each(lambda connection: connection.drain())
        clean = await self._wait_empty(deadline_s)
        if not clean:
            self._each(lambda connection: connection.abandon())
            if not await self._wait_empty(min(1.0, deadline_s)):
                self._each(lambda connection: connection.abort())
                await self._wait_empty(1.0)
        return clean

    def _each(self, step: Callable[[Connection], None]) -> None:
        for connection in list(self._open):
            step(connection)

    async def _wait_empty(self, deadline_s: float) -> bool:
        while self._open:
            self._emptied.clear()
            try:
                async with asyncio.timeout(deadline_s):
                    await self._emptied.wait()
            except TimeoutError:
                return not self._open
        return True
