"""The receiving half of an HTTP/2 connection: bytes are read in slices, in the turns of its caller.

A few kilobytes may be a hundred requests, so after each slice the turn may be over. The socket is not read while the
peer does not take what is sent, while received bytes wait here, or while it is held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.http.wire.connections import Connections
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.http2.frame_meter import FrameMeter
from tenure.http.wire.http2.writer import Http2Writer

__all__ = ["Http2Reader"]

_SLICE_BYTES = 16 * 1024
_SMALL_SLICE_BYTES = 512
"""What is parsed at once: of a frame that has begun, of frames to come. The latter may be a request each."""


class Http2Reader:
    """The reader of one connection. ``parse`` is called with each slice.

    ``caller`` is charged for the time that reading takes; ``is_at_door`` is set while the last of what was read was
    refused there: then its allowance is charged too.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        registry: Connections,
        *,
        meter: FrameMeter,
        writer: Http2Writer,
        caller: Caller,
        parse: Callable[[bytes], None],
    ) -> None:
        self._transport = transport
        self._registry = registry
        self._meter = meter
        self._writer = writer
        self._parse = parse
        self._unread = b""
        self._waits = False
        self._paused = False
        self.caller = caller
        self.is_at_door = False
        self.is_held_back = False
        """Whether nothing is read: an answer waits at the door, and no key was used on this connection."""
        self._is_reading = False

    def receive(self, data: bytes) -> None:
        """Take in bytes from the socket."""
        self._unread = self._unread + data if self._unread else data
        if not self._waits:
            self._read()

    def _read(self) -> None:
        """Parse what has come, for as long as this turn of the loop allows, and the rest in a later one."""
        registry, data, at = self._registry, self._unread, 0
        fair = registry.fair
        self._waits, self._is_reading = False, True
        while at < len(data) and not self._writer.gone and not self.is_held_back:
            if not (fair.is_free or fair.serves(self.caller)):
                self._waits = True
                self.caller.wait(self._read)
                break
            began_s = fair.clock()
            size = max(_SMALL_SLICE_BYTES, min(self._meter.left_bytes, _SLICE_BYTES))
            self._parse(data[at : at + size])
            self.caller.spend(began_s)
            if self.is_at_door:
                registry.door.spend(began_s)
            at += size
        self._is_reading = False
        self._unread = b"" if self._writer.gone else data[at:]
        self.regulate()

    def regulate(self) -> None:
        """Pause or resume the socket."""
        pause = self._writer.stalled or self._waits or self.is_held_back
        if pause != self._paused and not self._transport.is_closing():
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def hold_back(self, is_held_back: bool) -> None:
        """Read nothing more, or read on."""
        was_held_back, self.is_held_back = self.is_held_back, is_held_back
        if was_held_back and not (is_held_back or self._is_reading or self._waits or self._writer.gone):
            self._read()

    def lose(self) -> None:
        """Drop the callback, because the peer is gone: it refers to the connection, which would be freed by the garbage
        collector only.
        """
        del self._parse
