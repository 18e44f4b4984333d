"""`SocketConnection`: a socket and the reader of its responses, and the one way in which blocking code waits for it.

The sockets never block: what they are not ready for is waited for with `poll`, and every wait counts what is left of
its limit from the clock. A limit of the socket itself begins again after each signal, because Python repeats a system
call that a signal has interrupted; a process with a timer or a profiler would wait for ever.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from tenure.client.transport.http1 import ResponseReader
from tenure.client.transport.wire import Response, WireError

__all__ = ["NO_LOOK", "SocketConnection", "Waiting", "polling", "wait_until_ready"]

T = TypeVar("T")
R = TypeVar("R")
_FIRST_BYTES = 16 * 1024
_CHUNK_BYTES = 256 * 1024


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


NO_LOOK = _NoLook()


def polling(sock: socket.socket, events: int) -> select.poll:
    """Return what `wait_until_ready` waits for: these events of a socket, its end included."""
    polled = select.poll()
    polled.register(sock, events)
    return polled


def wait_until_ready(polled: select.poll, *, until_s: float, waiting: Waiting, sent: bool) -> list[tuple[int, int]]:
    """Return the sockets that are ready, with their events. Raises TimeoutError, and what ``waiting`` raises."""
    while (left_s := until_s - time.monotonic()) > 0:
        if ready := polled.poll(min(left_s, waiting.pause_s) * 1000):  # goes on with what is left after a signal
            return ready
        if left_s > waiting.pause_s:
            waiting.look(lambda: bool(polled.poll(0)), sent=sent)
    raise TimeoutError("timed out")


class SocketConnection:
    """A connected socket that does not block. One thread uses it at a time, and any may call `interrupt`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._reader = ResponseReader()
        self._used_s = 0.0
        self._readable = polling(sock, select.POLLIN)
        self.waiting: Waiting = NO_LOOK

    def is_alive(self, idle_s: float) -> bool:
        """Whether an idle connection can carry another request: it is not too old, and the server did not end it."""
        return time.monotonic() - self._used_s < idle_s and not self._readable.poll(0)

    def reusable(self) -> bool:
        """Whether the response left the connection as the next request wants to find it."""
        self._used_s = time.monotonic()
        return self._reader.is_complete and self._reader.keep_alive

    def send(self, pieces: tuple[bytes, ...], *, timeout_s: float) -> None:
        """Send a request. A server that stopped reading is no error yet: its response may say why."""
        until_s = time.monotonic() + timeout_s
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[self._attempt(self._sock.send, rest, events=select.POLLOUT, until_s=until_s) :]
        except TimeoutError as error:
            raise WireError(f"the server did not take the request within {timeout_s} s", sent=True) from error
        except OSError:
            pass

    def read_response(self, bytes_max: int, *, timeout_s: float) -> Response:
        """Return the whole response, which has ``timeout_s`` to come. Raises WireError."""
        reader = self._reader
        reader.begin(bytes_max=bytes_max)
        until_s = time.monotonic() + timeout_s
        self._receive(until_s, _FIRST_BYTES)
        while not reader.is_complete:
            self._receive(until_s, _CHUNK_BYTES)
        return reader.response(reader.take())

    def read_head(self, *, error_bytes_max: int, timeout_s: float) -> Response:
        """Return the head of a response, with the body where the status is not 200. Raises WireError."""
        reader = self._reader
        reader.begin(bytes_max=error_bytes_max)
        until_s = time.monotonic() + timeout_s
        while not (reader.is_complete or (reader.has_head and reader.status == 200)):
            self._receive(until_s, _FIRST_BYTES)
        return reader.response(b"" if reader.status == 200 else reader.take())

    def read_some(self, *, timeout_s: float) -> bytes:
        """Return the next bytes of a body, none at its end. Raises WireError."""
        reader = self._reader
        while not (chunk := reader.take()) and not reader.is_complete:
            self._receive(time.monotonic() + timeout_s, _CHUNK_BYTES)
        return chunk

    def _receive(self, until_s: float, bytes_max: int) -> None:
        """Give the reader what comes next."""
        try:
            if not self._is_tls:  # which may have read from the socket what comes next
                wait_until_ready(self._readable, until_s=until_s, waiting=self.waiting, sent=True)
            elif time.monotonic() > until_s:
                raise TimeoutError
            data = self._attempt(self._sock.recv, bytes_max, events=select.POLLIN, until_s=until_s)
        except TimeoutError as error:
            raise WireError("timed out", sent=True) from error
        except OSError as error:
            raise WireError(str(error) or type(error).__name__, sent=True) from error
        if data:
            self._reader.feed(data)
        else:
            self._reader.feed_eof()

    def _attempt(self, call: Callable[[T], R], argument: T, *, events: int, until_s: float) -> R:
        """Send or receive, and wait where the socket is not ready. Raises OSError, and WireError to give it up."""
        while True:
            try:
                return call(argument)
            except BlockingIOError:
                awaited = events
            except ssl.SSLWantReadError:  # TLS reads where it writes, and the other way round
                awaited = select.POLLIN
            except ssl.SSLWantWriteError:
                awaited = select.POLLOUT
            wait_until_ready(polling(self._sock, awaited), until_s=until_s, waiting=self.waiting, sent=True)

    def interrupt(self) -> None:
        """End a read that another thread is in, and every later one."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._sock.close()
