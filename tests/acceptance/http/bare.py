"""Requests byte by byte, for what no proper client would send."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.kit.restartable_server import PATIENCE_S, Serving

__all__ = ["Bare", "send"]


class Bare:
    """One connection. ``small`` leaves the peer little room to send into, as a slow reader does."""

    def __init__(self, server: Serving, *, small: bool = False) -> None:
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", server.port))
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next response."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers

    def answer(self) -> tuple[int, Any]:
        """Status and JSON body of the next response."""
        status, headers = self.head()
        return status, json.loads(self._file.read(int(headers["content-length"])))

    def line(self) -> bytes:
        """The next line of a stream; chunk sizes are lines of their own."""
        return self._file.readline()

    def ended(self) -> bool:
        """Read to the end of the connection."""
        try:
            while self._file.read(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


def send(server: Serving, method: str, target: bytes, body: bytes | None = None, *headers: bytes) -> tuple[int, Any]:
    """One request with this very target and body on a connection of its own."""
    lines = [b"host: 127.0.0.1", b"accept: application/json, text/event-stream", *headers]
    if body is not None:
        lines += [b"content-length: %d" % len(body)]
        if not any(header.lower().startswith(b"content-type") for header in headers):
            lines.append(b"content-type: application/json")
    with Bare(server) as peer:
        peer.send(b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method.encode(), target, b"\r\n".join(lines), body or b""))
        return peer.answer()
