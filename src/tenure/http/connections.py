"""All connections together: how many, how much they hold, how long they may take, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from time import time
from typing import Protocol

import msgspec

from tenure.http.bodies import Bodies
from tenure.http.limits import WireLimits
from tenure.http.unsent import Holder, Unsent

__all__ = ["Connection", "Connections", "Counts"]


class Connection(Protocol):
    """A connection as its registry sees it."""

    def tick(self, now_s: float) -> None:
        """Look at your deadlines."""

    def drain(self) -> None:
        """Finish what is in flight, end streams, take nothing new, close."""

    def abandon(self) -> None:
        """Answer at once what is still waiting, that the server stops, and close."""

    def abort(self) -> None:
        """Close without another byte."""


class Counts(msgspec.Struct):
    """What happened on the wire since the start."""

    accepted: int = 0
    requests: int = 0
    over_cap: int = 0
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
        self.draining = False
        self.connections_max = limits.connections_max
        self._loop = loop or asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event = asyncio.Event()
        self.now_s = self._loop.time()
        self.date = b""
        self._stamp()

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Let the timer run."""
        self._timer = self._loop.call_later(self.limits.tick_ms / 1000, self._on_timer)

    def stop(self) -> None:
        """Let the timer stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self.start()
        self.tick(self._loop.time())

    def tick(self, now_s: float) -> None:
        """Let every connection look at its deadlines as of ``now_s``."""
        self.now_s = now_s
        self._stamp()
        for connection in list(self._open):
            connection.tick(now_s)

    def _stamp(self) -> None:
        self.date = b"date: %b\r\n" % formatdate(time(), usegmt=True).encode()

    def add(self, connection: Connection) -> bool | None:
        """Take a connection in. False: over the cap, tell it and close it; None: far over the cap, just close it."""
        self.counts.accepted += 1
        room = self.connections_max - len(self._open)
        if room <= 0:
            self.counts.over_cap += 1
            if -room >= 16 + self.connections_max // 16:
                return None
        self._open.add(connection)
        return room > 0

    def discard(self, connection: Connection) -> None:
        """A connection is gone."""
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()

    def replace(self, old: Connection, new: Connection) -> None:
        """A connection turned out to speak another protocol."""
        self._open.discard(old)
        self._open.add(new)

    def note_unsent(self, holder: Holder) -> None:
        """Count what a connection keeps for its peer, and make room where all of them keep too much."""
        self.counts.slow_readers += self.unsent.note(holder, self.now_s)

    async def drain(self, deadline_s: float) -> bool:
        """End every connection within ``deadline_s`` seconds; True where all ended by themselves."""
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
