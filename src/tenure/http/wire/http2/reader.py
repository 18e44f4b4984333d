"""The receiving half of an HTTP/2 connection: bytes are read in slices, within the loop's turns and with back-pressure.

A few kilobytes may be a hundred requests, so no more is parsed at once than one turn of the loop allows. The socket is
not read while the peer does not take what is sent, while received bytes wait here, or while the peer is held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.http.wire.connections import Connections
from tenure.http.wire.http2.frame_meter import FrameMeter
from tenure.http.wire.http2.writer import Http2Writer

__all__ = ["Http2Reader"]

_SLICE_BYTES = 16 * 1024
_SMALL_SLICE_BYTES = 512
"""What is parsed at once: of a frame that has begun, of frames to come. The latter may be a request each."""


class Http2Reader:
    """The reader of one connection. ``parse`` is called with each slice, ``on_resume`` after a hold has ended."""

    def __init__(
        self,
        transport: asyncio.Transport,
        registry: Connections,
        *,
        meter: FrameMeter,
        writer: Http2Writer,
        parse: Callable[[bytes], None],
        on_resume: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._registry = registry
        self._meter = meter
        self._writer = writer
        self._parse = parse
        self._on_resume = on_resume
        self._unread = b""
        self._waits = False
        self._paused = False
        self._hold: asyncio.TimerHandle | None = None

    @property
    def is_held_back(self) -> bool:
        """Whether nothing is read or started, because this peer is refused too often."""
        return self._hold is not None

    def receive(self, data: bytes) -> None:
        """Take in bytes from the socket."""
        self._unread = self._unread + data if self._unread else data
        if not self._waits:
            self._read()

    def _read(self) -> None:
        """Parse what has come, for as long as this turn of the loop allows, and the rest in a later one."""
        turns, data, at = self._registry.reading, self._unread, 0
        self._waits = False
        while at < len(data) and not self._writer.gone and self._hold is None:
            if turns.used_up():
                self._waits = True
                turns.wait(self._read)
                break
            size = max(_SMALL_SLICE_BYTES, min(self._meter.left_bytes, _SLICE_BYTES))
            self._parse(data[at : at + size])
            at += size
        self._unread = b"" if self._writer.gone else data[at:]
        self.regulate()

    def regulate(self) -> None:
        """Pause or resume the socket."""
        pause = self._writer.stalled or self._waits or self._hold is not None
        if pause != self._paused and not self._transport.is_closing():
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def hold_back(self, delay_s: float) -> None:
        """Read nothing more for ``delay_s`` seconds."""
        if delay_s and self._hold is None and not self._registry.draining:
            self._hold = asyncio.get_running_loop().call_later(delay_s, self._resume)
            self.regulate()

    def _resume(self) -> None:
        self._hold = None
        if not self._writer.gone:
            self._read()
            self._on_resume()

    def release(self) -> None:
        """End a hold at once."""
        if self._hold is not None:
            self._hold.cancel()
            self._resume()

    def lose(self) -> None:
        """Cancel a hold, because the peer is gone, and drop the callbacks: they refer to the connection, which would
        be freed by the garbage collector only.
        """
        if self._hold is not None:
            self._hold.cancel()
        del self._parse, self._on_resume
