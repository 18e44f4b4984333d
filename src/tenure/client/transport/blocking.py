"""`SocketWire`: requests over blocking sockets, from any number of threads, over a pool of connections.

Whether anything was sent is not guessed from the kind of error: it is what happened before the first byte left, or
after. A process that was forked off gets connections of its own (`tenure.client.transport.fork`).
"""

from __future__ import annotations

import ssl
import threading

from tenure.client.settings import ClientSettings
from tenure.client.transport.http1 import ERROR_BYTES_MAX
from tenure.client.transport.origin import Origin
from tenure.client.transport.socket_connect import connect
from tenure.client.transport.socket_connection import NO_LOOK, SocketConnection, Waiting
from tenure.client.transport.socket_pool import SocketPool
from tenure.client.transport.wire import Request, Response

__all__ = ["SocketStream", "SocketWire"]


class SocketWire:
    """Two pools, one for calls and one for streams, so that open streams never keep a call waiting."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._origin = Origin(url, key=key, tls=tls)
        self._settings = settings
        self._closed = False
        self._calls = SocketPool[SocketConnection](settings.connections_max, setting="connections_max")
        self._streams = SocketPool[SocketConnection](settings.streams_max, setting="streams_max")

    def send(self, request: Request, waiting: Waiting = NO_LOOK) -> Response:
        answer_s = request.seconds(self._settings.answer_ms + request.wait_ms)
        connection = self._connect(self._calls, request, waiting)
        try:
            connection.send(self._origin.encode(request), timeout_s=answer_s)
            response = connection.read_response(self._settings.response_bytes_max, timeout_s=answer_s)
        except BaseException:  # half an answer is left in the connection: no other request may use it
            self._calls.drop(connection)
            raise
        if connection.reusable():
            self._calls.put(connection)
        else:
            self._calls.drop(connection)
        return response

    def open(self, request: Request, waiting: Waiting = NO_LOOK) -> SocketStream:
        asked = request.for_stream()
        idle_s = self._settings.stream_idle_ms / 1000
        connection = self._connect(self._streams, asked, waiting)
        stream = SocketStream(connection, self._streams, idle_s=idle_s)
        try:
            connection.send(self._origin.encode(asked), timeout_s=idle_s)
            stream.response = connection.read_head(error_bytes_max=ERROR_BYTES_MAX, timeout_s=idle_s)
        except BaseException:
            stream.close()
            raise
        if stream.response.status != 200:
            stream.close()
        return stream

    def _connect(self, pool: SocketPool[SocketConnection], request: Request, waiting: Waiting) -> SocketConnection:
        """Return a connection for a request, an idle one where there is one. Raises WireError: nothing was sent."""
        self._origin.check(closed=self._closed)
        settings = self._settings
        connection = pool.get(request.seconds(settings.acquire_ms))
        if connection is not None and not connection.is_alive(settings.idle_ms / 1000):
            pool.forget(connection)
            connection = None
        if connection is None:
            connection = self._make(pool, request.seconds(settings.connect_ms), waiting)
        connection.waiting = waiting
        return connection

    def _make(self, pool: SocketPool[SocketConnection], timeout_s: float, waiting: Waiting) -> SocketConnection:
        """Return a new connection in a place of the pool, or give the place back. Raises WireError."""
        try:
            connection = SocketConnection(connect(self._origin, timeout_s, waiting))
        except OSError as error:
            pool.free_place()
            raise self._origin.unreached(error) from error
        except BaseException:
            pool.free_place()
            raise
        pool.use(connection)
        return connection

    def close(self) -> None:
        self._closed = True
        self._calls.close()
        self._streams.close()


class SocketStream:
    """Bytes as they come. `close` may be called from another thread, and in a signal handler that interrupts the
    reading one: it ends the read and does not wait for it. The last of the two lets go of the connection.
    """

    def __init__(self, connection: SocketConnection, pool: SocketPool[SocketConnection], *, idle_s: float) -> None:
        self._connection = connection
        self._pool = pool
        self._idle_s = idle_s
        self._busy = threading.Lock()
        self._closed = self._gone = False
        self.response = Response(0, b"")

    def read(self, waiting: Waiting = NO_LOOK) -> bytes:
        try:
            with self._busy:
                self._connection.waiting = waiting
                return self._connection.read_some(timeout_s=self._idle_s)
        finally:
            if self._closed:
                self._let_go()

    def close(self) -> None:
        self._closed = True
        self._connection.interrupt()
        self._let_go()

    def _let_go(self) -> None:
        """Close the connection, unless it is being read or closed already: then who does that comes here later."""
        if self._busy.acquire(blocking=False):
            if not self._gone:
                self._gone = True
                self._pool.drop(self._connection)
            self._busy.release()
