"""HTTP/1.1 without a socket: `RequestEncoder` writes a request, `ResponseReader` reads its response from pieces."""

from __future__ import annotations

import httptools

from tenure.address import Address, headers_of
from tenure.client.transport.wire import Request, Response, WireError

__all__ = ["ERROR_BYTES_MAX", "RequestEncoder", "ResponseReader"]

ERROR_BYTES_MAX = 1 << 20
"""The longest body that is read of a response that refuses a stream."""
_HEAD_BYTES_MAX = 64 * 1024
"""The longest status line and headers that are read."""
_COPIED_BYTES_MAX = 64 * 1024
"""A body up to here is copied behind its head: one packet, and one system call."""


_HEADERS = {
    name.encode(): name
    for name in (
        "content-length",
        "content-type",
        "location",
        "retry-after",
        "transfer-encoding",
    )
}
"""The headers of a response that are kept: what else a server sends is not looked at."""


class RequestEncoder:
    """Writes requests to one server. The headers that each of them has are encoded once."""

    def __init__(self, address: Address, *, key: str | None) -> None:
        host = address.host if address.host.isascii() else address.host.encode("idna").decode()
        host = f"[{host}]" if ":" in host else host
        default = address.port == (443 if address.scheme == "https" else 80)
        shared = {"host": host if default else f"{host}:{address.port}", **headers_of(key)}
        self._prefix = address.prefix
        self._shared = " HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in shared.items())

    def encode(self, request: Request) -> tuple[bytes, ...]:
        """Return a request in the pieces to send: in one, or the head and a long body as it is."""
        head = f"{request.method} {self._prefix}{request.path}{self._shared}"
        for name, value in request.headers.items():
            head += f"{name}: {value}\r\n"
        body = request.body
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        elif request.method != "GET":
            head += "content-length: 0\r\n"
        encoded = f"{head}\r\n".encode()
        if not body:
            return (encoded,)
        return (encoded + body,) if len(body) <= _COPIED_BYTES_MAX else (encoded, body)


class ResponseReader:
    """Reads one response after the other from the bytes of a connection.

    `feed` takes bytes as they come. After `is_complete`, `begin` makes it ready for the next response. A connection
    with bytes after a response is not to be used again: ``keep_alive`` is false then, or `feed` raises.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.begin(bytes_max=0)

    def begin(self, *, bytes_max: int) -> None:
        """Expect a response with a body of at most ``bytes_max`` bytes, counted until it is taken."""
        self._bytes_max = bytes_max
        self._room = bytes_max
        self._head_bytes = 0
        self._chunks: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._until_eof = False
        self._interim = False
        self.status = 0
        self.has_head = False
        self.is_complete = False
        self.keep_alive = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection. Raises WireError where they are no response or a too long one."""
        if self.is_complete:
            raise WireError("the server sent more than one response", sent=True)
        if not self.has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise WireError(f"the response is not HTTP/1.1: {error}", sent=True) from error
        if not self.has_head and self._head_bytes > _HEAD_BYTES_MAX:
            raise WireError(f"the head of the response is longer than {_HEAD_BYTES_MAX} bytes", sent=True)
        if self._room < 0:
            raise WireError(f"the answer is longer than {self._bytes_max} bytes", sent=True)

    def feed_eof(self) -> None:
        """The connection ended. Raises WireError where the response did not end with it."""
        if not self._until_eof:
            raise WireError("the connection was closed before the whole response came", sent=True)
        self.is_complete = True

    @property
    def unread_bytes(self) -> int:
        """How much of the body came and was not taken."""
        return self._bytes_max - self._room

    def take(self) -> bytes:
        """Return the part of the body that came since the last call."""
        chunks = self._chunks
        if not chunks:
            return b""
        self._chunks = []
        self._room = self._bytes_max
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def response(self, body: bytes) -> Response:
        """Return the response with this body."""
        return Response(self.status, body, self._headers)

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.is_complete:  # a second response, in the same piece: nobody asked for it
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        known = _HEADERS.get(name) or _HEADERS.get(name.lower())
        if known is not None and not self.is_complete:
            self._headers[known] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.is_complete:
            return
        self.status = self._parser.get_status_code()
        self._interim = self.status < 200
        if self._interim:  # 100 Continue and its like: the response follows
            self._headers = {}
            return
        self.has_head = True
        self.keep_alive = self._parser.should_keep_alive()
        self._until_eof = not ("content-length" in self._headers or "transfer-encoding" in self._headers)

    def on_body(self, data: bytes) -> None:
        if self.is_complete:
            return
        self._room -= len(data)
        if self._room >= 0:
            self._chunks.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = self.is_complete or not self._interim
