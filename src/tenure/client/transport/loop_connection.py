"""`LoopConnection`: a connection on an event loop and the reader of its responses; `SocketConnection` is its twin."""

from __future__ import annotations

import asyncio
import enum

from tenure.client.transport.http1 import ResponseReader
from tenure.client.transport.wire import WireError

__all__ = ["Awaited", "LoopConnection"]

_UNREAD_BYTES_MAX = 256 * 1024
"""A stream with more than this unread is not received further until it is read."""


class Awaited(enum.Enum):
    """What a connection has received before its caller goes on."""

    HEAD = enum.auto()
    SOME = enum.auto()
    WHOLE = enum.auto()


class LoopConnection(asyncio.Protocol):
    """One connection: at most one request at a time, and at most one task that waits for its response."""

    def __init__(self) -> None:
        self.reader = ResponseReader()
        self.is_open = False
        self.used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._awaited = Awaited.WHOLE
        self._error: WireError | None = None
        self._streaming = self._paused = False

    def send(self, pieces: tuple[bytes, ...], *, bytes_max: int, streaming: bool = False) -> None:
        """Send a request. A response with status 200 and ``streaming`` is received only as it is read."""
        transport = self._transport
        assert transport is not None
        self.reader.begin(bytes_max=bytes_max)
        self._streaming = streaming
        for piece in pieces:
            transport.write(piece)

    async def receive(self, awaited: Awaited, *, timeout_s: float) -> None:
        """Wait until that much of the response has come. Raises WireError; the connection is of no use then."""
        if self._has(awaited):
            return
        if self._error is not None:
            raise self._error
        self._awaited = awaited
        self._waiter = waiter = self._loop.create_future()
        late = WireError(f"no answer came within {timeout_s} s", sent=True)
        timer = self._loop.call_later(timeout_s, self._fail, late)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    async def read_some(self, *, timeout_s: float) -> bytes:
        """Return the next bytes of a body, none at its end. Raises WireError."""
        await self.receive(Awaited.SOME, timeout_s=timeout_s)
        chunk = self.reader.take()
        if self._paused and self.is_open:
            self._paused = False
            self._transport.resume_reading()  # type: ignore[union-attr]  # it is open
        return chunk

    def reusable(self) -> bool:
        """Whether the response left the connection as the next request wants to find it."""
        self.used_s = self._loop.time()
        return self.is_open and self.reader.is_complete and self.reader.keep_alive

    def abort(self) -> None:
        """Close the connection now. A task that waits for its response gets a WireError."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _has(self, awaited: Awaited) -> bool:
        reader = self.reader
        if awaited is Awaited.SOME:
            return reader.is_complete or reader.unread_bytes > 0
        return reader.is_complete or (awaited is Awaited.HEAD and reader.has_head)

    def _fail(self, error: WireError) -> None:
        self._error = error
        self.abort()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a connection, so one to write to
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        reader = self.reader
        try:
            reader.feed(data)
        except WireError as error:
            self._fail(error)
            return
        if self._waiter is not None and not self._waiter.done() and self._has(self._awaited):
            self._waiter.set_result(None)
        if self._streaming and reader.status == 200 and reader.unread_bytes > _UNREAD_BYTES_MAX and self.is_open:
            self._paused = True
            self._transport.pause_reading()  # type: ignore[union-attr]  # it is open

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._error is not None or self.reader.is_complete:
            return
        try:
            if error is not None:
                raise WireError(str(error) or type(error).__name__, sent=True)
            self.reader.feed_eof()
        except WireError as lost:
            self._fail(lost)
        else:
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)
