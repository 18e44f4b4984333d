"""`Router`: a `Wire` to the servers of one client, which follows the leader among them."""

from __future__ import annotations

import ssl

from tenure.address import Address, parse_addresses
from tenure.client.settings import ClientSettings
from tenure.client.transport.blocking import SocketStream, SocketWire
from tenure.client.transport.endpoints import REDIRECTS_MAX, Endpoints, Server
from tenure.client.transport.lookout import Lookout
from tenure.client.transport.wire import Request, Response, Stream, WireError

__all__ = ["Router"]


class Router:
    """As `SocketWire`, for one URL or several. A refusal that names the leader is repeated there; nothing else is."""

    def __init__(
        self, urls: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        def connect(address: Address) -> SocketWire:
            return SocketWire(address.base, key=key, settings=settings, tls=tls)

        self._endpoints = Endpoints(parse_addresses(urls), key=key, settings=settings, connect=connect)
        self._lookout = Lookout(self._endpoints, settings)
        self.has_several = self._endpoints.has_several

    def send(self, request: Request) -> Response:
        server, redirects = self._endpoints.first, 0
        while True:
            response = self._send_to(server, request)
            leader = self._endpoints.judge(server, response)
            if leader is None or redirects == REDIRECTS_MAX:
                return response
            server, redirects = leader, redirects + 1

    def _send_to(self, server: Server[SocketWire], request: Request) -> Response:
        try:
            if not self.has_several():
                return server.wire.send(request)
            return server.wire.send(request, self._lookout.wait_for(server, wait_ms=request.wait_ms))
        except WireError as error:
            self._endpoints.note_error(server, error)
            raise

    def open(self, request: Request) -> Stream:
        server, redirects = self._endpoints.first, 0
        while True:
            stream = self._open_at(server, request)
            leader = self._endpoints.judge(server, stream.response)
            if leader is None or redirects == REDIRECTS_MAX:
                return _RoutedStream(stream, server, endpoints=self._endpoints, lookout=self._lookout)
            server, redirects = leader, redirects + 1

    def _open_at(self, server: Server[SocketWire], request: Request) -> SocketStream:
        try:
            if not self.has_several():
                return server.wire.open(request)
            return server.wire.open(request, self._lookout.wait_for(server))
        except WireError as error:
            self._endpoints.note_error(server, error)
            raise

    def close(self) -> None:
        for server in self._endpoints.close():
            server.wire.close()


class _RoutedStream:
    """A stream of one of the servers. Where it breaks, another server is asked first; its silence is looked into."""

    def __init__(
        self, stream: SocketStream, server: Server[SocketWire], *, endpoints: Endpoints[SocketWire], lookout: Lookout
    ) -> None:
        self.response = stream.response
        self._stream = stream
        self._server = server
        self._endpoints = endpoints
        self._lookout = lookout
        self._closed = False

    def read(self) -> bytes:
        try:
            if not self._endpoints.has_several():
                return self._stream.read()
            return self._stream.read(self._lookout.wait_for(self._server, is_stream=True))
        except WireError as error:
            if not self._closed:
                self._endpoints.note_error(self._server, error)
            raise

    def close(self) -> None:
        self._closed = True
        self._stream.close()
