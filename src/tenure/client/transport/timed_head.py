"""`TimedHead`: a response whose head has one time limit.

The timeout of a socket starts again with every byte, so a head that drips would hold its caller for ever. The reader of
the body bounds the body.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

__all__ = ["TimedHead"]


class _Reading(io.RawIOBase):
    """Reads of a socket that share its one timeout until `free` is called."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._timeout_s = sock.gettimeout()
        self._until_s = 0.0 if self._timeout_s is None else time.monotonic() + self._timeout_s
        self._begun = self._freed = self._timeout_s is None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._begun and not self._freed:  # the first read finds the timeout as it should be
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the head of the answer took too long")
            self._sock.settimeout(left_s)
        self._begun = True
        return self._raw.readinto(buffer)

    def free(self) -> None:
        """Give each further read the whole timeout."""
        self._freed = True
        self._sock.settimeout(self._timeout_s)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Opening:
    """The part of a socket that the standard library needs to read a response."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reading)


class TimedHead(http.client.HTTPResponse):
    """A response whose status and headers must come within the socket's timeout. Raises TimeoutError."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        self._reading = _Reading(sock)
        opening: Any = _Opening(self._reading)
        super().__init__(opening, *args, **options)

    def begin(self) -> None:
        super().begin()
        self._reading.free()
