"""`AsyncRouter`: an `AsyncWire` to the servers of one client, which follows the leader among them."""

from __future__ import annotations

import asyncio
import ssl

from tenure.address import Address, parse_addresses
from tenure.client.settings import ClientSettings
from tenure.client.transport.aio import LoopWire
from tenure.client.transport.async_lookout import AsyncLookout
from tenure.client.transport.endpoints import REDIRECTS_MAX, Endpoints, Server
from tenure.client.transport.wire import AsyncStream, Request, Response, WireError

__all__ = ["AsyncRouter"]


class AsyncRouter:
    """As `LoopWire`, for one URL or several. A refusal that names the leader is repeated there; nothing else is."""

    def __init__(
        self, urls: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        def connect(address: Address) -> LoopWire:
            return LoopWire(address.base, key=key, settings=settings, tls=tls)

        self._endpoints = Endpoints(parse_addresses(urls), key=key, settings=settings, connect=connect)
        self._lookout = AsyncLookout(self._endpoints, settings)
        self.has_several = self._endpoints.has_several

    async def send(self, request: Request) -> Response:
        server, redirects = self._endpoints.first, 0
        while True:
            response = await self._send_to(server, request)
            leader = self._endpoints.judge(server, response)
            if leader is None or redirects == REDIRECTS_MAX:
                return response
            server, redirects = leader, redirects + 1

    async def _send_to(self, server: Server[LoopWire], request: Request) -> Response:
        try:
            if not self.has_several():
                return await server.wire.send(request)
            async with self._lookout.watch(server, wait_ms=request.wait_ms) as watch:
                connection = await server.wire.connect(request)
                watch.sent = True
                return await server.wire.exchange(connection, request)
        except WireError as error:
            self._endpoints.note_error(server, error)
            raise

    async def open(self, request: Request) -> AsyncStream:
        server, redirects = self._endpoints.first, 0
        while True:
            stream = await self._open_at(server, request)
            leader = self._endpoints.judge(server, stream.response)
            if leader is None or redirects == REDIRECTS_MAX:
                return _RoutedStream(stream, server, endpoints=self._endpoints, lookout=self._lookout)
            server, redirects = leader, redirects + 1

    async def _open_at(self, server: Server[LoopWire], request: Request) -> AsyncStream:
        try:
            if not self.has_several():
                return await server.wire.open(request)
            async with self._lookout.watch(server) as watch:
                connection = await server.wire.connect(request)
                watch.sent = True
                return await server.wire.open_on(connection, request)
        except WireError as error:
            self._endpoints.note_error(server, error)
            raise

    async def close(self) -> None:
        self._lookout.close()
        await asyncio.gather(*(server.wire.close() for server in self._endpoints.close()))


class _RoutedStream:
    """A stream of one of the servers. Where it breaks, another server is asked first; its silence is looked into."""

    def __init__(
        self, stream: AsyncStream, server: Server[LoopWire], *, endpoints: Endpoints[LoopWire], lookout: AsyncLookout
    ) -> None:
        self.response = stream.response
        self._stream = stream
        self._server = server
        self._endpoints = endpoints
        self._lookout = lookout
        self._closed = False

    async def read(self) -> bytes:
        try:
            if not self._endpoints.has_several():
                return await self._stream.read()
            async with self._lookout.watch(self._server, is_stream=True) as watch:
                watch.sent = True
                return await self._stream.read()
        except WireError as error:
            if not self._closed:
                self._endpoints.note_error(self._server, error)
            raise

    def close(self) -> None:
        self._closed = True
        self._stream.close()
