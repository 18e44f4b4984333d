"""`SocketWire`: requests over blocking sockets, from any number of threads, over a pool of connections.

Whether anything was sent is not guessed from the kind of error: it is what happened before the first byte left, or
after. A process that was forked off gets connections of its own (`tenure.client.transport.fork`).
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from tenure.client.settings import ClientSettings
from tenure.client.transport.fork import close_in_child
from tenure.client.transport.http1 import ERROR_BYTES_MAX, ResponseReader
from tenure.client.transport.idle_connections import IdleConnections
from tenure.client.transport.origin import Origin
from tenure.client.transport.wire import Request, Response, WireError, all_in_use

__all__ = ["SocketStream", "SocketWire", "Waiting"]

T = TypeVar("T")
R = TypeVar("R")
_FIRST_BYTES = 16 * 1024
_CHUNK_BYTES = 256 * 1024
_TIMEVAL = struct.Struct("@ll")
_TIMEOUTS = (BlockingIOError, TimeoutError)
"""The errors of a socket whose limit is over: of the kernel, and of Python."""


class Waiting(Protocol):
    """What to do while an answer does not come: `look` is called after each ``pause_s`` of silence.

    It may raise WireError, to give up the request; ``sent`` says whether it was sent. ``ready`` returns whether the
    silence is over: then `look` returns soon.
    """

    pause_s: float

    def look(self, ready: Callable[[], bool], *, sent: bool) -> None: ...


class _NoLook:
    """Wait in one go."""

    pause_s = math.inf

    def look(self, ready: Callable[[], bool], *, sent: bool) -> None:
        raise AssertionError("nothing takes for ever")


_NO_LOOK = _NoLook()


class SocketWire:
    """Two pools, one for calls and one for streams, so that open streams never keep a call waiting."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._origin = Origin(url, key=key, tls=tls)
        self._settings = settings
        self._closed = False
        self._calls = IdleConnections[_Connection](settings.connections_max)
        self._streams = IdleConnections[_Connection](settings.streams_max)

    def send(self, request: Request, waiting: Waiting = _NO_LOOK) -> Response:
        answer_s = request.seconds(self._settings.answer_ms + request.wait_ms)
        connection = self._connect(self._calls, request, waiting, limit="connections_max")
        try:
            connection.send(self._origin.encode(request), timeout_s=answer_s)
            response = connection.read_response(self._settings.response_bytes_max, timeout_s=answer_s)
        except BaseException:  # half an answer is left in the connection: no other request may use it
            connection.close()
            self._calls.put(None)
            raise
        self._calls.put(connection if connection.reusable() else None)
        return response

    def open(self, request: Request, waiting: Waiting = _NO_LOOK) -> SocketStream:
        asked = request.for_stream()
        idle_s = self._settings.stream_idle_ms / 1000
        connection = self._connect(self._streams, asked, waiting, limit="streams_max")
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

    def _connect(
        self, pool: IdleConnections[_Connection], request: Request, waiting: Waiting, *, limit: str
    ) -> _Connection:
        """Return a connection for a request, an idle one where there is one. Raises WireError: nothing was sent."""
        self._origin.check(closed=self._closed)
        settings = self._settings
        try:
            connection = pool.get(request.seconds(settings.acquire_ms))
        except TimeoutError:
            raise all_in_use(limit) from None
        if connection is not None:
            if connection.is_alive(settings.idle_ms / 1000):
                connection.waiting = waiting
                return connection
            connection.close()
        try:
            connection = _Connection(_connect(self._origin, request.seconds(settings.connect_ms), waiting))
            connection.waiting = waiting
            return connection
        except OSError as error:
            pool.put(None)
            raise self._origin.unreached(error) from error
        except BaseException:
            pool.put(None)
            raise

    def close(self) -> None:
        self._closed = True
        for connection in self._calls.drain() + self._streams.drain():
            connection.close()


def _connect(origin: Origin, timeout_s: float, waiting: Waiting) -> socket.socket:
    """Return a connected socket. Every address of the host is tried, each within its share of the time."""
    until_s = time.monotonic() + timeout_s
    found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    failed: OSError | None = None
    for left, (family, kind, protocol, _, place) in zip(range(len(found), 0, -1), found, strict=True):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            now_s = time.monotonic()
            _reach(sock, place, until_s=now_s + (until_s - now_s) / left, waiting=waiting)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.tls is not None:
                sock = origin.tls.wrap_socket(sock, server_hostname=origin.host, do_handshake_on_connect=False)
                _shake_hands(sock, until_s=until_s, waiting=waiting)
            sock.setblocking(True)  # the kernel keeps the limits, see `_Connection`
            close_in_child(sock)
            return sock
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
    raise failed if failed is not None else OSError("the name of the host has no address")


def _reach(sock: socket.socket, place: Any, *, until_s: float, waiting: Waiting) -> None:
    """Connect a socket that does not block. Raises OSError."""
    code = sock.connect_ex(place)
    if code in (errno.EINPROGRESS, errno.EINTR):
        _await_ready(sock, select.POLLOUT, until_s=until_s, waiting=waiting)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _shake_hands(sock: ssl.SSLSocket, *, until_s: float, waiting: Waiting) -> None:
    """Begin TLS on a socket that does not block. Raises OSError."""
    while True:
        try:
            return sock.do_handshake()
        except ssl.SSLWantReadError:
            _await_ready(sock, select.POLLIN, until_s=until_s, waiting=waiting)
        except ssl.SSLWantWriteError:
            _await_ready(sock, select.POLLOUT, until_s=until_s, waiting=waiting)


def _await_ready(sock: socket.socket, events: int, *, until_s: float, waiting: Waiting) -> None:
    """Wait for a socket, before anything was sent. Raises TimeoutError, and what ``waiting`` raises."""
    polled = select.poll()
    polled.register(sock, events)
    while (left_s := until_s - time.monotonic()) > 0:
        if polled.poll(min(left_s, waiting.pause_s) * 1000):
            return
        if left_s > waiting.pause_s:
            waiting.look(lambda: bool(polled.poll(0)), sent=False)
    raise TimeoutError("timed out")


class _Connection:
    """A socket and the reader of its responses; one thread uses it at a time, and any may call `interrupt`.

    The limits of its waits are kept by the kernel, as options of the socket: a limit of Python's own costs a system
    call more for each send and each receive.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._timeout_s = 0.0
        self._reader = ResponseReader()
        self._used_s = 0.0
        self._polled = select.poll()
        self._polled.register(sock, select.POLLIN)
        self.waiting: Waiting = _NO_LOOK

    def is_alive(self, idle_s: float) -> bool:
        """Whether an idle connection can carry another request: it is not too old, and the server did not end it."""
        return time.monotonic() - self._used_s < idle_s and not self._polled.poll(0)

    def reusable(self) -> bool:
        """Whether the response left the connection as the next request wants to find it."""
        if self._reader.is_complete and self._reader.keep_alive:
            self._used_s = time.monotonic()
            return True
        self.close()
        return False

    def send(self, pieces: tuple[bytes, ...], *, timeout_s: float) -> None:
        """Send a request. A server that stopped reading is no error yet: its response may say why."""
        until_s, left_s = time.monotonic() + timeout_s, timeout_s
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[self._attempt(self._sock.send, rest, timeout_s=left_s) :]
                    left_s = until_s - time.monotonic()
        except _TIMEOUTS as error:
            raise WireError(f"the server did not take the request within {timeout_s} s", sent=True) from error
        except OSError:
            pass

    def read_response(self, bytes_max: int, *, timeout_s: float) -> Response:
        """Return the whole response, which has ``timeout_s`` to come. Raises WireError."""
        reader = self._reader
        reader.begin(bytes_max=bytes_max)
        until_s = time.monotonic() + timeout_s
        self._receive(timeout_s, _FIRST_BYTES)
        while not reader.is_complete:
            self._receive(until_s - time.monotonic(), _CHUNK_BYTES)
        return reader.response(reader.take())

    def read_head(self, *, error_bytes_max: int, timeout_s: float) -> Response:
        """Return the head of a response, with the body where the status is not 200. Raises WireError."""
        reader = self._reader
        reader.begin(bytes_max=error_bytes_max)
        until_s = time.monotonic() + timeout_s
        while not (reader.is_complete or (reader.has_head and reader.status == 200)):
            self._receive(until_s - time.monotonic(), _FIRST_BYTES)
        return reader.response(b"" if reader.status == 200 else reader.take())

    def read_some(self, *, timeout_s: float) -> bytes:
        """Return the next bytes of a body, none at its end. Raises WireError."""
        reader = self._reader
        while not (chunk := reader.take()) and not reader.is_complete:
            self._receive(timeout_s, _CHUNK_BYTES)
        return chunk

    def _receive(self, timeout_s: float, bytes_max: int) -> None:
        """Give the reader what comes next. A limit of the socket alone would begin again with every byte."""
        try:
            data = self._attempt(self._sock.recv, bytes_max, timeout_s=timeout_s)
        except _TIMEOUTS as error:
            raise WireError("timed out", sent=True) from error
        except OSError as error:
            raise WireError(str(error) or type(error).__name__, sent=True) from error
        if data:
            self._reader.feed(data)
        else:
            self._reader.feed_eof()

    def _attempt(self, call: Callable[[T], R], argument: T, *, timeout_s: float) -> R:
        """Send or receive once, and look around while that blocks. Raises OSError, and WireError to give it up."""
        until_s, left_s = time.monotonic() + timeout_s, timeout_s
        while left_s > 0:
            pause_s = self.waiting.pause_s
            self._limit(min(left_s, pause_s))
            try:
                return call(argument)
            except _TIMEOUTS:
                if left_s > pause_s:
                    self.waiting.look(lambda: bool(self._polled.poll(0)), sent=True)
            left_s = until_s - time.monotonic()
        raise TimeoutError("the answer took too long")

    def _limit(self, timeout_s: float) -> None:
        """Bound every wait of the socket by ``timeout_s``. TLS tries again when the kernel gives up, so there Python
        keeps the limit.
        """
        if timeout_s == self._timeout_s:
            return
        self._timeout_s = timeout_s
        if isinstance(self._sock, ssl.SSLSocket):
            self._sock.settimeout(timeout_s)
            return
        limit = _TIMEVAL.pack(*divmod(max(int(timeout_s * 1_000_000), 1), 1_000_000))  # 0 would mean no limit
        with contextlib.suppress(OSError):  # closed by another thread: the next call finds out
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def interrupt(self) -> None:
        """End a read that another thread is in, and every later one."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._sock.close()


class SocketStream:
    """Bytes as they come. `close` may be called from another thread, and in a signal handler that interrupts the
    reading one: it ends the read and does not wait for it. The last of the two lets go of the connection.
    """

    def __init__(self, connection: _Connection, pool: IdleConnections[_Connection], *, idle_s: float) -> None:
        self._connection = connection
        self._pool = pool
        self._idle_s = idle_s
        self._busy = threading.Lock()
        self._closed = self._gone = False
        self.response = Response(0, b"")

    def read(self, waiting: Waiting = _NO_LOOK) -> bytes:
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
                self._connection.close()
                self._pool.put(None)
            self._busy.release()
