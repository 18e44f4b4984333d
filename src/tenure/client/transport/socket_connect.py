"""Connect a blocking client: the addresses of a host in a race, then TLS. `loop_connect` is the twin on a loop."""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import time
from types import TracebackType
from typing import Self

from tenure.client.transport.fork import close_in_child
from tenure.client.transport.origin import Origin
from tenure.client.transport.race import Place, Race
from tenure.client.transport.socket_connection import Waiting, polling, wait_until_ready

__all__ = ["connect"]


def connect(origin: Origin, timeout_s: float, waiting: Waiting) -> socket.socket:
    """Return a connected socket that does not block. Raises OSError once every address has failed, or the time is
    over; a name is looked up for as long as the system takes.
    """
    until_s = time.monotonic() + timeout_s
    found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    race = Race(found, now_s=time.monotonic(), timeout_s=timeout_s)
    with _Attempts(race, until_s=until_s, waiting=waiting) as attempts:
        while True:
            sock = attempts.first()
            try:
                sock = _begin(sock, origin, until_s=until_s, waiting=waiting)
            except OSError as error:
                race.failed(error)
            else:
                close_in_child(sock)
                return sock


def _begin(sock: socket.socket, origin: Origin, *, until_s: float, waiting: Waiting) -> socket.socket:
    """Return a connected socket with TLS where the origin has it, or close it. Raises OSError."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if origin.tls is not None:
            sock = origin.tls.wrap_socket(sock, server_hostname=origin.host, do_handshake_on_connect=False)
            _shake_hands(sock, until_s=until_s, waiting=waiting)
    except BaseException:
        sock.close()
        raise
    return sock


def _shake_hands(sock: ssl.SSLSocket, *, until_s: float, waiting: Waiting) -> None:
    while True:
        try:
            return sock.do_handshake()
        except ssl.SSLWantReadError:
            awaited = select.POLLIN
        except ssl.SSLWantWriteError:
            awaited = select.POLLOUT
        wait_until_ready(polling(sock, awaited), until_s=until_s, waiting=waiting, sent=False)


class _Attempts:
    """The sockets that are being connected. Leaving it closes those that are left."""

    def __init__(self, race: Race, *, until_s: float, waiting: Waiting) -> None:
        self._race = race
        self._until_s = until_s
        self._waiting = waiting
        self._trying: dict[int, socket.socket] = {}
        self._polled = select.poll()

    def first(self) -> socket.socket:
        """Return the next socket that is connected. Raises OSError where none will be."""
        while True:
            self._try_due()
            if not self._trying:
                raise self._race.error
            for number in self._ready():
                self._polled.unregister(number)
                sock = self._trying.pop(number)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    return sock
                sock.close()
                self._race.failed(OSError(code, os.strerror(code)))

    def _try_due(self) -> None:
        while (place := self._race.next(time.monotonic())) is not None:
            try:
                self._try(place)
            except OSError as error:
                self._race.failed(error)

    def _try(self, place: Place) -> None:
        family, kind, protocol, _, address = place
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EINTR):
            sock.close()
            raise OSError(code, os.strerror(code))
        self._trying[sock.fileno()] = sock
        self._polled.register(sock, select.POLLOUT)

    def _ready(self) -> list[int]:
        """Wait until a socket is connected or has failed, or the next address is due, and return the sockets."""
        until_s = min(self._until_s, self._race.due_s)
        try:
            ready = wait_until_ready(self._polled, until_s=until_s, waiting=self._waiting, sent=False)
        except TimeoutError:
            if time.monotonic() >= self._until_s:
                raise
            return []
        return [number for number, _ in ready]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self._trying.values():
            sock.close()
