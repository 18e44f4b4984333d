"""`Urllib3Wire`: requests over blocking sockets, from any number of threads, over a pool of connections.

Whether anything was sent is not guessed from the kind of error: the connection itself notes the moment before its first
byte leaves. A process that was forked off gets connections of its own (`tenure.client.transport.fork`).
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from tenure.address import headers_of, parse_address
from tenure.client.settings import ClientSettings
from tenure.client.transport.fork import close_in_child
from tenure.client.transport.idle_connections import IdleConnections
from tenure.client.transport.timed_head import TimedHead
from tenure.client.transport.wire import Request, Response, Stream, WireError
from tenure.server_guard import check_server

__all__ = ["Urllib3Wire"]

_CHUNK_BYTES = 256 * 1024
_ERROR_BYTES_MAX = 1 << 20


class _Here(threading.local):
    sent = False
    """Whether the request that this thread is making may have left the machine."""


_here = _Here()


class _At:
    """A connection or a pool that urllib3's messages name by its host and port."""

    def __str__(self: Any) -> str:
        return f"{self.host}:{self.port}"


class _PlainConnection(_At, HTTPConnection):
    response_class = TimedHead

    def connect(self) -> None:
        super().connect()
        close_in_child(self.sock)

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _here.sent = True
        super().send(data)


class _TlsConnection(_PlainConnection, HTTPSConnection):
    pass


class _PlainPool(_At, urllib3.HTTPConnectionPool):
    QueueCls = IdleConnections  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    ConnectionCls = _PlainConnection  # pyright: ignore[reportAssignmentType]


class _TlsPool(_At, urllib3.HTTPSConnectionPool):
    QueueCls = IdleConnections  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    ConnectionCls = _TlsConnection  # pyright: ignore[reportAssignmentType]


class Urllib3Wire:
    """Two pools, one for calls and one for streams, so that open streams never keep a call waiting."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address = parse_address(url)
        self._headers = headers_of(key)
        self._settings = settings
        self._closed = False
        if tls is None and self._address.scheme == "https":
            tls = ssl.create_default_context()
        self._calls = self._make_pool(settings.connections_max, tls)
        self._streams = self._make_pool(settings.streams_max, tls)

    def _make_pool(self, connections_max: int, tls: ssl.SSLContext | None) -> urllib3.HTTPConnectionPool:
        host, port = self._address.host, self._address.port
        if self._address.scheme == "http":
            return _PlainPool(host, port, maxsize=connections_max, block=True)
        return _TlsPool(host, port, maxsize=connections_max, block=True, ssl_context=tls)

    def send(self, request: Request) -> Response:
        settings = self._settings
        answer_s = request.seconds(settings.answer_ms + request.wait_ms)
        response = self._open(request, self._calls, read_s=answer_s)
        body = _bounded(response, settings.response_bytes_max, answer_s=answer_s)
        return Response(response.status, body, _headers(response))

    def open(self, request: Request) -> Stream:
        asked = Request(request.method, request.path, request.body, {"accept": "text/event-stream", **request.headers})
        idle_s = self._settings.stream_idle_ms / 1000
        response = self._open(asked, self._streams, read_s=idle_s)
        body = b"" if response.status == 200 else _bounded(response, _ERROR_BYTES_MAX, answer_s=idle_s)
        return _Urllib3Stream(response, Response(response.status, body, _headers(response)))

    def _open(self, request: Request, pool: urllib3.HTTPConnectionPool, *, read_s: float) -> urllib3.BaseHTTPResponse:
        if self._closed:
            raise WireError("this client is closed: make another one", sent=False, closed=True)
        check_server(self._address.base)
        settings = self._settings
        headers = self._headers | dict(request.headers)
        if request.body is not None:
            headers["content-type"] = "application/json"
        _here.sent = False
        try:
            return pool.urlopen(
                request.method,
                self._address.prefix + request.path,
                request.body,
                headers,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=request.seconds(settings.connect_ms), read=read_s),
                pool_timeout=request.seconds(settings.acquire_ms),  # type: ignore[arg-type]  # it takes a float
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _wire_error(error, sent=_here.sent) from error

    def close(self) -> None:
        self._closed = True
        self._calls.close()
        self._streams.close()


class _Urllib3Stream:
    """Bytes as they come. `close` may be called from another thread, and in a signal handler that interrupts the
    reading one: it ends the read and does not wait for it. The last of the two lets go of the connection.
    """

    def __init__(self, opened: urllib3.BaseHTTPResponse, response: Response) -> None:
        self._opened = opened
        self._busy = threading.Lock()
        self._closed = False
        self.response = response

    def read(self) -> bytes:
        try:
            with self._busy:
                return self._opened.read1(_CHUNK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _wire_error(error, sent=True) from error
        finally:
            if self._closed:
                self._let_go()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._opened.shutdown()
        self._let_go()

    def _let_go(self) -> None:
        """Close the connection, unless it is being read or closed: then the thread that does so closes it later."""
        if self._busy.acquire(blocking=False):
            with contextlib.suppress(OSError):
                self._opened.close()
                self._opened.release_conn()
            self._busy.release()


def _bounded(response: urllib3.BaseHTTPResponse, bytes_max: int, *, answer_s: float) -> bytes:
    """Return the whole body, and the connection to its pool. Raises WireError where the body is longer, or takes
    longer, than allowed: the socket's own timeout starts again with every byte.
    """
    chunks: list[bytes] = []
    room, until_s = bytes_max, time.monotonic() + answer_s
    try:
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                raise WireError(f"the answer is longer than {bytes_max} bytes", sent=True)
            if time.monotonic() > until_s:
                raise WireError(f"the answer took longer than {answer_s} s", sent=True)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise _wire_error(error, sent=True) from error
    except BaseException:  # half an answer is left in the connection: it must not be used again
        response.close()
        raise
    finally:
        response.release_conn()
    return b"".join(chunks)


def _wire_error(error: Exception, *, sent: bool) -> WireError:
    """Return a WireError with the message of an error, without the tuples that urllib3 makes of some."""
    words = " ".join(map(str, error.args)) if isinstance(error, urllib3.exceptions.ProtocolError) else str(error)
    return WireError(words or type(error).__name__, sent=sent)


def _headers(response: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
