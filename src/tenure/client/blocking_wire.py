"""`Urllib3Wire`: requests over blocking sockets, from any number of threads, over a pool of connections.

Whether anything was sent is not guessed from the kind of error: the connection itself notes the moment before its first
byte leaves. A process that was forked off gets connections of its own.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from tenure.client.address import headers_of, parse_address
from tenure.client.settings import ClientSettings
from tenure.client.timed_head import TimedHead
from tenure.client.wire import Request, Response, Stream, WireError

__all__ = ["Urllib3Wire"]

_CHUNK_BYTES = 256 * 1024
_ERROR_BYTES_MAX = 1 << 20


class _Here(threading.local):
    sent = False
    """Whether the request that this thread is making may have left the machine."""


_here = _Here()


class _At:
    """Says where it leads, in the messages of urllib3 too."""

    def __str__(self: Any) -> str:
        return f"{self.host}:{self.port}"


class _PlainConnection(_At, HTTPConnection):
    response_class = TimedHead

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _here.sent = True
        super().send(data)


class _TlsConnection(_PlainConnection, HTTPSConnection):
    pass


class _PlainPool(_At, urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection  # pyright: ignore[reportAssignmentType]


class _TlsPool(_At, urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection  # pyright: ignore[reportAssignmentType]


class Urllib3Wire:
    """Two pools, one for calls and one for streams, so that open streams never keep a call waiting."""

    def __init__(
        self, url: str, *, key: str | None = None, settings: ClientSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address = parse_address(url)
        self._headers = headers_of(key)
        self._settings = settings
        self._tls = tls
        self._lock = threading.Lock()
        self._closed = False
        self._pid = 0

    def _pool(self, *, streams: bool) -> urllib3.HTTPConnectionPool:
        with self._lock:
            if self._closed:
                raise WireError("this client is closed: make another one", sent=False, closed=True)
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._calls = self._make_pool(self._settings.connections_max)
                self._streams = self._make_pool(self._settings.streams_max)
            return self._streams if streams else self._calls

    def _make_pool(self, connections_max: int) -> urllib3.HTTPConnectionPool:
        address = self._address
        if address.scheme == "http":
            return _PlainPool(address.host, address.port, maxsize=connections_max, block=True)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return _TlsPool(address.host, address.port, maxsize=connections_max, block=True, ssl_context=self._tls)

    def send(self, request: Request) -> Response:
        settings, answer_ms = self._settings, self._settings.answer_ms + request.wait_ms
        response = self._open(request, self._pool(streams=False), read_ms=answer_ms)
        body = _bounded(response, settings.response_bytes_max, answer_ms=answer_ms)
        return Response(response.status, body, _headers(response))

    def open(self, request: Request) -> Stream:
        asked = Request(request.method, request.path, request.body, {"accept": "text/event-stream", **request.headers})
        idle_ms = self._settings.stream_idle_ms
        response = self._open(asked, self._pool(streams=True), read_ms=idle_ms)
        body = b"" if response.status == 200 else _bounded(response, _ERROR_BYTES_MAX, answer_ms=idle_ms)
        return _Urllib3Stream(response, Response(response.status, body, _headers(response)))

    def _open(self, request: Request, pool: urllib3.HTTPConnectionPool, *, read_ms: int) -> urllib3.BaseHTTPResponse:
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
                timeout=urllib3.Timeout(connect=settings.connect_ms / 1000, read=read_ms / 1000),
                pool_timeout=settings.acquire_ms / 1000,  # type: ignore[arg-type]  # it takes a float
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _wire_error(error, sent=_here.sent) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                self._calls.close()
                self._streams.close()


class _Urllib3Stream:
    """Bytes as they come. `close` may be called from another thread: it ends a read there, and waits for that."""

    def __init__(self, opened: urllib3.BaseHTTPResponse, response: Response) -> None:
        self._opened = opened
        self._reading = threading.Lock()
        self.response = response

    def read(self) -> bytes:
        try:
            with self._reading:
                return self._opened.read1(_CHUNK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _wire_error(error, sent=True) from error

    def close(self) -> None:
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._opened.shutdown()
        with self._reading, contextlib.suppress(OSError):
            self._opened.close()
            self._opened.release_conn()


def _bounded(response: urllib3.BaseHTTPResponse, bytes_max: int, *, answer_ms: int) -> bytes:
    """The whole body, and the connection back in its pool. Raises WireError where it is longer, or takes longer, than
    allowed: the socket's own timeout begins anew with every byte.
    """
    chunks: list[bytes] = []
    room, until_s = bytes_max, time.monotonic() + answer_ms / 1000
    try:
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            room -= len(chunk)
            if room < 0:
                raise WireError(f"the answer is longer than {bytes_max} bytes", sent=True)
            if time.monotonic() > until_s:
                raise WireError(f"the answer took longer than {answer_ms} ms", sent=True)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise _wire_error(error, sent=True) from error
    except BaseException:  # half an answer is left in the connection: nobody may use it again
        response.close()
        raise
    finally:
        response.release_conn()
    return b"".join(chunks)


def _wire_error(error: Exception, *, sent: bool) -> WireError:
    """In the words of the error, without the tuples that urllib3 makes of some."""
    words = " ".join(map(str, error.args)) if isinstance(error, urllib3.exceptions.ProtocolError) else str(error)
    return WireError(words or type(error).__name__, sent=sent)


def _headers(response: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}
