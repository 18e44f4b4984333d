"""The outlet of an event stream: what it sends, and its wait for more.

A stream that follows something is a task, and waking a task for each event costs more than the write. So while it
waits, whoever has an event for it writes straight to the peer by `Outlet.offer`, and the task sleeps on. At any other
time, and where the peer has not taken what it was sent, an offer is refused: then the task is woken, and reads on by
itself at the pace of its peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.http.wire.message import Send, SharedBytes

__all__ = ["Outlet"]


class Outlet:
    """The sending end of one event stream. ``heartbeat`` returns what is sent after ``heartbeat_ms`` without anything
    else; an error that it raises ends the wait.
    """

    __slots__ = ("_arrival", "_heartbeat", "_heartbeat_s", "_loop", "_offer", "_send", "_sent_at_s", "_waits")

    def __init__(self, send: Send, *, heartbeat_ms: int, heartbeat: Callable[[], bytes]) -> None:
        self._send = send
        self._offer = send.offer
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._sent_at_s = self._loop.time()
        self._arrival = asyncio.Event()
        self._waits = False

    async def send(self, data: bytes) -> None:
        """Send bytes; return when there is room for more. Raises ConnectionError where the peer is gone."""
        await self._send(data)
        self._sent_at_s = self._loop.time()

    def push(self, data: bytes) -> bool:
        """Send bytes at once; return False, with nothing sent, where the peer has no room for them or is gone."""
        if not self._offer(SharedBytes(data)):
            return False
        self._sent_at_s = self._loop.time()
        return True

    async def room(self) -> None:
        """Return when there is room for more. Raises ConnectionError where the peer is gone."""
        await self._send(b"")

    def offer(self, shared: SharedBytes) -> bool:
        """Send bytes while the stream waits and its peer has room, else return False."""
        if not self._waits or not self._offer(shared):
            return False
        self._sent_at_s = self._loop.time()
        return True

    def wake(self) -> None:
        """End the wait, or the next one if the stream does not wait now."""
        self._waits = False
        self._arrival.set()

    async def wait(self) -> None:
        """Wait for `wake`; send heartbeats meanwhile where nothing else is sent."""
        while not self._arrival.is_set():
            self._waits = True
            try:
                async with asyncio.timeout_at(self._sent_at_s + self._heartbeat_s):
                    await self._arrival.wait()
            except TimeoutError:
                self._waits = False
                if self._loop.time() >= self._sent_at_s + self._heartbeat_s:  # nothing was offered since
                    await self.send(self._heartbeat())
            finally:
                self._waits = False
        self._arrival.clear()
