"""Accepting connections: each is counted from its acceptance on, also while its TLS handshake is under way.

The loop's own server would hand a TLS connection over only after its handshake, and would take everything that the
kernel holds at once. Then peers that never start their handshake have all the file descriptors, and the log cannot open
its next segment.

A turn of the loop accepts for `accept_ms` and not a number of connections: turns are long where the server is busy, and
a number for each would leave new connections waiting behind everything that is opened and closed for nothing.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from time import perf_counter

from tenure.http.wire.connections import Connections
from tenure.http.wire.http1.protocol import HttpProtocol
from tenure.http.wire.message import Admit

__all__ = ["Listener"]

log = logging.getLogger("tenure.http")

_REPLACED_AT_ONCE = 4
"""Connections accepted in one turn of the loop where there are as many as are allowed: what is cut to make room for
them has its file descriptor until the next.
"""
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """The acceptor of one bound socket, which it owns."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        admit: Admit,
        registry: Connections,
        ssl_context: ssl.SSLContext | None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._sock = sock
        self._admit = admit
        self._registry = registry
        self._ssl_context = ssl_context
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._closed = False
        sock.setblocking(False)
        sock.listen(registry.limits.backlog)
        self._loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Stop accepting."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def _accept(self) -> None:
        """Accept until this turn's time for it is over, or no connection waits."""
        end_s, replaced = self._clock() + self._registry.limits.accept_ms / 1000, 0
        while self._accept_one():
            replaced += self._registry.is_full
            if replaced >= _REPLACED_AT_ONCE or self._clock() >= end_s:
                return

    def _accept_one(self) -> bool:
        """Accept a connection, or close it where not even a refusal is sent; return False where none can be had."""
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            if error.errno not in _SHORT:
                raise
            self._rest(error)
            return False
        if self._registry.crowded:
            self._registry.counts.over_cap += 1
            sock.close()
            return True
        sock.setblocking(False)
        peer = str(address[0]) if isinstance(address, tuple) else ""
        Arrival(sock, peer, admit=self._admit, registry=self._registry, ssl_context=self._ssl_context)
        return True

    def _rest(self, error: OSError) -> None:
        """Pause where the system has no resources for one more: make some room, and continue at the next tick."""
        log.warning("no connection can be accepted now: %s", error.strerror)
        self._registry.cut_silent()
        self._loop.remove_reader(self._sock)
        self._loop.call_later(self._registry.limits.tick_ms / 1000, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)


class Arrival:
    """A socket from its acceptance until a protocol speaks on it; over TLS that is the end of the handshake."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        admit: Admit,
        registry: Connections,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self._registry = registry
        self._admit = admit
        self._begun = False
        self._protocol: HttpProtocol | None = None
        self._has_room = registry.add(self, peer)
        self._task = asyncio.get_running_loop().create_task(self._connect(sock, ssl_context))
        self._task.add_done_callback(lambda _: self._ended(sock))

    async def _connect(self, sock: socket.socket, ssl_context: ssl.SSLContext | None) -> None:
        self._begun = True  # from here on the transport closes the socket
        timeout_s = self._registry.limits.tls_handshake_ms / 1000 if ssl_context is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, sock, ssl=ssl_context, ssl_handshake_timeout=timeout_s
            )
        except ConnectionAbortedError:
            self._registry.counts.timed_out += 1
        except OSError:
            self._registry.counts.refused += 1  # gone before it spoke, or no TLS at all

    def _make_protocol(self) -> HttpProtocol:
        self._protocol = HttpProtocol(self._admit, self._registry, arrival=self, has_room=self._has_room)
        return self._protocol

    def _ended(self, sock: socket.socket) -> None:
        protocol, self._protocol = self._protocol, None
        self._registry.discard(self)
        if protocol is not None and self._task.cancelled():  # then uvloop closes the socket without a word to it
            self._registry.discard(protocol)
        if not self._begun:
            sock.close()

    def tick(self, now_s: float) -> None:
        """Do nothing: the loop keeps the deadline of the handshake."""

    def drain(self) -> None:
        """Close: no request has come yet."""
        self._task.cancel()

    def abandon(self) -> None:
        self._task.cancel()

    def abort(self) -> None:
        """Close without another byte."""
        self._task.cancel()
