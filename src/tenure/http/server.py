"""Binding, TLS, serving, and stopping gracefully."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from pathlib import Path

from tenure.http.api.app import App
from tenure.http.wire.connections import Connections, over_cap_max
from tenure.http.wire.limits import WireLimits
from tenure.http.wire.listener import Listener
from tenure.http.wire.message import Admit

__all__ = ["Server", "bind", "serve", "tls_context"]

_FILES_SPARE = 256
"""File descriptors kept for the log and everything else that is no connection."""


class Server:
    """A server that accepts connections; made by ``serve``."""

    def __init__(self, listeners: list[Listener], sockets: list[socket.socket], connections: Connections) -> None:
        self._listeners = listeners
        self.port: int = sockets[0].getsockname()[1]
        self.connections = connections

    @property
    def draining(self) -> bool:
        """Whether `drain` was called."""
        return self.connections.draining

    async def drain(self, deadline_s: float = 10.0) -> bool:
        """Stop: accept nothing more, close what is idle, end streams, let requests finish; then cut the rest.

        Returns within ``deadline_s`` plus two seconds, True where nothing had to be cut. A second call while one is
        under way waits as well and does no harm.
        """
        for listener in self._listeners:
            listener.close()
        clean = await self.connections.drain(deadline_s)
        self.connections.stop()
        return clean

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(0.0)


async def serve(
    app: App | Admit,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: WireLimits | None = None,
    ssl_context: ssl.SSLContext | None = None,
    sockets: list[socket.socket] | None = None,
) -> Server:
    """Serve an app, or anything that admits requests, on every address of ``host``.

    Port 0 takes a free one; ``sockets`` that are bound already take the place of host and port. Raises OSError where
    the address cannot be had.
    """
    admit: Admit = app.admit if isinstance(app, App) else app
    limits = limits or WireLimits()
    connections = Connections(limits)
    connections.connections_max = _affordable(limits.connections_max)
    sockets = sockets if sockets is not None else bind(host, port, limits=limits)
    listeners = [Listener(one, admit=admit, registry=connections, ssl_context=ssl_context) for one in sockets]
    connections.start()
    return Server(listeners, sockets, connections)


def bind(host: str, port: int, *, limits: WireLimits) -> list[socket.socket]:
    """Return listening sockets on every address of ``host``, all on one port. Connections inherit their options."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            one = socket.socket(family, kind, number)
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _set_patience(one, limits)
            taken = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            one.bind((address[0], taken, *address[2:]))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _set_patience(one: socket.socket, limits: WireLimits) -> None:
    """Set keep-alive and time-out, so that a silent loss of a peer is noticed; on Linux connections inherit them."""
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", limits.keepalive_idle_s),
        ("TCP_KEEPINTVL", limits.keepalive_interval_s),
        ("TCP_USER_TIMEOUT", limits.user_timeout_ms),
    ):
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _affordable(connections_max: int) -> int:
    """Return how many connections there are file descriptors for, after asking for more of them. Connections that are
    only answered that there is no room take some as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + over_cap_max(connections_max) + _FILES_SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == -1 else min(wanted, hard), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = soft - _FILES_SPARE
    return connections_max if soft == -1 else max(1, min(connections_max, left - over_cap_max(left)))


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context from certificate and key files, for HTTP/2 and HTTP/1.1. Raises OSError, ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context
