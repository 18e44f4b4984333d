"""`LoopWire`: requests on an event loop, over a pool of connections.

What failed before a connection stood was not sent; everything after that may have been. Nothing is repeated here: what
may be repeated is decided in `tenure.client.plan.retry`.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections import deque

from tenure.client.settings import ClientSettings
from tenure.client.transport.http1 import ERROR_BYTES_MAX, ResponseReader
from tenure.client.transport.origin import Origin
from tenure.client.transport.wire import AsyncStream, Request, Response, WireError, all_in_use
from tenure.errors import Invalid

__all__ = ["Connection", "LoopWire"]

_UNREAD_BYTES_MAX = 256 * 1024
"""A stream with more than this unread is not received further until it is read."""


class LoopWire:
    """Made anywhere, used on one loop. Calls and streams share one pool."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._origin = Origin(url, key=key, tls=tls)
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pool = _Pool(settings.connections_max + settings.streams_max)

    async def send(self, request: Request) -> Response:
        return await self.exchange(await self.connect(request), request)

    async def exchange(self, connection: Connection, request: Request) -> Response:
        """Send a request over a connection that `connect` returned for it."""
        settings = self._settings
        try:
            connection.send(self._origin.encode(request), bytes_max=settings.response_bytes_max)
            await connection.receive(_Awaited.WHOLE, timeout_s=request.seconds(settings.answer_ms + request.wait_ms))
        except BaseException:  # half an answer is left in the connection: no other request may use it
            self._pool.drop(connection)
            raise
        self._pool.put(connection)
        return connection.reader.response(connection.reader.take())

    async def open(self, request: Request) -> AsyncStream:
        return await self.open_on(await self.connect(request), request)

    async def open_on(self, connection: Connection, request: Request) -> AsyncStream:
        """Open a stream over a connection that `connect` returned for it."""
        idle_s = self._settings.stream_idle_ms / 1000
        stream = _LoopStream(connection, self._pool, idle_s=idle_s)
        try:
            encoded = self._origin.encode(request.for_stream())
            connection.send(encoded, bytes_max=ERROR_BYTES_MAX, streaming=True)
            await connection.receive(_Awaited.HEAD, timeout_s=idle_s)
            reader = connection.reader
            if reader.status != 200:
                await connection.receive(_Awaited.WHOLE, timeout_s=idle_s)
        except BaseException:
            stream.close()
            raise
        stream.response = reader.response(b"" if reader.status == 200 else reader.take())
        if reader.status != 200:
            stream.close()
        return stream

    async def connect(self, request: Request) -> Connection:
        """Return a connection for a request, an idle one where there is one. Raises WireError: nothing was sent."""
        self._check_usable()
        settings = self._settings
        connection = self._pool.take_idle(settings.idle_ms / 1000)
        if connection is not None:
            return connection
        connection = await self._pool.take_place(request.seconds(settings.acquire_ms))
        if connection is not None:
            return connection
        try:
            async with asyncio.timeout(request.seconds(settings.connect_ms)):
                connection = await _connect(self._origin)
        except OSError as error:
            self._pool.free_place()
            raise self._origin.unreached(error) from error
        except BaseException:
            self._pool.free_place()
            raise
        self._pool.use(connection)
        return connection

    def _check_usable(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise Invalid("an AsyncClient stays on the loop that used it first: make one per loop, or use Client")
            self._loop = loop
        self._origin.check(closed=self._closed)

    async def close(self) -> None:
        self._closed = True
        await self._pool.close()


async def _connect(origin: Origin) -> Connection:
    loop = asyncio.get_running_loop()
    name = None if origin.tls is None else origin.host
    _, connection = await loop.create_connection(
        Connection, origin.host, origin.port, ssl=origin.tls, server_hostname=name
    )
    return connection


class _Pool:
    """A bounded number of connections: those in use, those that are being made, and the idle ones."""

    def __init__(self, connections_max: int) -> None:
        self._free = connections_max
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    def take_idle(self, idle_s: float) -> Connection | None:
        """Return the connection that was used last and is still good, if there is one."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and now_s - connection.used_s < idle_s:
                self._used.add(connection)
                return connection
            connection.abort()
            self._free += 1
        return None

    async def take_place(self, timeout_s: float) -> Connection | None:
        """Wait for a connection that another request gives back, or, as None, for a place to make one.

        Raises WireError.
        """
        if self._free:
            self._free -= 1
            return None
        coming: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(coming)
        try:
            async with asyncio.timeout(timeout_s):
                return await coming
        except BaseException as error:
            if coming.done() and not coming.cancelled():  # it came with the cancellation: the next one gets it
                self._pass_on(coming.result())
            elif coming in self._waiting:
                self._waiting.remove(coming)
            if isinstance(error, TimeoutError):
                raise all_in_use("connections_max or streams_max") from None
            raise

    def use(self, connection: Connection) -> None:
        """Count a connection that was made for a place."""
        self._used.add(connection)

    def put(self, connection: Connection) -> None:
        """Give a connection back after its response came whole."""
        if not connection.reusable():
            self.drop(connection)
            return
        self._used.discard(connection)
        self._pass_on(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection and free its place; a second time does nothing."""
        connection.abort()
        if connection in self._used:
            self._used.discard(connection)
            self._pass_on(None)

    def free_place(self) -> None:
        """Give back a place for which no connection was made."""
        self._pass_on(None)

    def _pass_on(self, connection: Connection | None) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                if connection is not None:
                    self._used.add(connection)
                waiting.set_result(connection)
                return
        if connection is None:
            self._free += 1
        else:
            self._idle.append(connection)

    async def close(self) -> None:
        """Close every connection, also those in use."""
        for connection in [*self._idle, *self._used]:
            connection.abort()
        self._free += len(self._idle)
        self._idle.clear()
        await asyncio.sleep(0)  # the loop then lets go of the sockets


class _Awaited(enum.Enum):
    """What a connection has received before its caller goes on."""

    HEAD = enum.auto()
    SOME = enum.auto()
    WHOLE = enum.auto()


class Connection(asyncio.Protocol):
    """One connection: at most one request at a time, and at most one task that waits for its response."""

    def __init__(self) -> None:
        self.reader = ResponseReader()
        self.is_open = False
        self.used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._awaited = _Awaited.WHOLE
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

    async def receive(self, awaited: _Awaited, *, timeout_s: float) -> None:
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
        await self.receive(_Awaited.SOME, timeout_s=timeout_s)
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

    def _has(self, awaited: _Awaited) -> bool:
        reader = self.reader
        if awaited is _Awaited.SOME:
            return reader.is_complete or reader.unread_bytes > 0
        return reader.is_complete or (awaited is _Awaited.HEAD and reader.has_head)

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


class _LoopStream:
    """Bytes as they come; what came together is read together."""

    def __init__(self, connection: Connection, pool: _Pool, *, idle_s: float) -> None:
        self._connection = connection
        self._pool = pool
        self._idle_s = idle_s
        self.response = Response(0, b"")

    async def read(self) -> bytes:
        return await self._connection.read_some(timeout_s=self._idle_s)

    def close(self) -> None:
        self._pool.drop(self._connection)
