"""`LoopWire`: requests on an event loop, over a pool of connections.

What failed before a connection stood was not sent; everything after that may have been. Nothing is repeated here: what
may be repeated is decided in `tenure.client.plan.retry`.
"""

from __future__ import annotations

import asyncio
import ssl

from tenure.client.settings import ClientSettings
from tenure.client.transport.http1 import ERROR_BYTES_MAX
from tenure.client.transport.loop_connect import connect
from tenure.client.transport.loop_connection import Awaited, LoopConnection
from tenure.client.transport.loop_pool import LoopPool
from tenure.client.transport.origin import Origin
from tenure.client.transport.wire import AsyncStream, Request, Response
from tenure.errors import Invalid

__all__ = ["LoopWire"]


class LoopWire:
    """Made anywhere, used on one loop. Calls and streams share one pool."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._origin = Origin(url, key=key, tls=tls)
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pool = LoopPool(settings.connections_max + settings.streams_max, setting="connections_max or streams_max")

    async def send(self, request: Request) -> Response:
        return await self.exchange(await self.connect(request), request)

    async def exchange(self, connection: LoopConnection, request: Request) -> Response:
        """Send a request over a connection that `connect` returned for it."""
        settings = self._settings
        try:
            connection.send(self._origin.encode(request), bytes_max=settings.response_bytes_max)
            await connection.receive(Awaited.WHOLE, timeout_s=request.seconds(settings.answer_ms + request.wait_ms))
        except BaseException:  # half an answer is left in the connection: no other request may use it
            self._pool.drop(connection)
            raise
        self._pool.put(connection)
        return connection.reader.response(connection.reader.take())

    async def open(self, request: Request) -> AsyncStream:
        return await self.open_on(await self.connect(request), request)

    async def open_on(self, connection: LoopConnection, request: Request) -> AsyncStream:
        """Open a stream over a connection that `connect` returned for it."""
        idle_s = self._settings.stream_idle_ms / 1000
        stream = _LoopStream(connection, self._pool, idle_s=idle_s)
        try:
            encoded = self._origin.encode(request.for_stream())
            connection.send(encoded, bytes_max=ERROR_BYTES_MAX, streaming=True)
            await connection.receive(Awaited.HEAD, timeout_s=idle_s)
            reader = connection.reader
            if reader.status != 200:
                await connection.receive(Awaited.WHOLE, timeout_s=idle_s)
        except BaseException:
            stream.close()
            raise
        stream.response = reader.response(b"" if reader.status == 200 else reader.take())
        if reader.status != 200:
            stream.close()
        return stream

    async def connect(self, request: Request) -> LoopConnection:
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
            connection = await connect(self._origin, request.seconds(settings.connect_ms))
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


class _LoopStream:
    """Bytes as they come; what came together is read together."""

    def __init__(self, connection: LoopConnection, pool: LoopPool, *, idle_s: float) -> None:
        self._connection = connection
        self._pool = pool
        self._idle_s = idle_s
        self.response = Response(0, b"")

    async def read(self) -> bytes:
        return await self._connection.read_some(timeout_s=self._idle_s)

    def close(self) -> None:
        self._pool.drop(self._connection)
