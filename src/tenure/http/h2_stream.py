"""One HTTP/2 stream: its request as it comes, its response as it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenure.errors import Invalid, Overloaded
from tenure.http.connections import Connections
from tenure.http.exchange import Pending
from tenure.http.message import Request
from tenure.http.wire import Refused, split_target

__all__ = ["Http2Stream"]


class Http2Stream:
    """Keeps both directions of a stream. ``out`` holds bytes that flow control or the socket has not let through."""

    __slots__ = (
        "_body",
        "_headers",
        "_method",
        "_path",
        "_query",
        "_registry",
        "_room",
        "blocked_allowed_s",
        "blocked_since_s",
        "body_bytes",
        "ended",
        "gone",
        "number",
        "opened",
        "out",
        "pending",
        "receiving",
        "since_s",
    )

    def __init__(self, number: int, registry: Connections) -> None:
        self.number = number
        self.since_s = registry.now_s
        self.body_bytes = 0
        self.receiving = True
        self.opened = False
        """Whether its response has begun."""
        self.ended = False
        """Whether its response is complete, in ``out`` or sent."""
        self.gone = False
        self.pending: Pending | None = None
        self.out = bytearray()
        self.blocked_since_s: float | None = None
        self.blocked_allowed_s = 0.0
        self._registry = registry
        self._room: asyncio.Future[None] | None = None
        self._body: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._method = self._path = self._query = ""

    def read_head(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in the headers. Raises Refused."""
        limits = self._registry.limits
        pseudo: dict[bytes, bytes] = {}
        total_bytes = lines = 0
        for name, value in pairs:
            lines += 1
            total_bytes += len(name) + len(value)
            if name.startswith(b":"):
                pseudo[name] = value
            else:
                key, text = name.decode("latin-1"), value.decode("latin-1")
                self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text
        target = pseudo.get(b":path", b"")
        if len(target) > limits.target_bytes_max:
            raise _too_large("the path and query are longer than this server reads", 414, limits.target_bytes_max)
        if total_bytes > limits.header_bytes_max + limits.target_bytes_max or lines > limits.headers_max:
            raise _too_large("the headers are larger than this server reads", 431, limits.header_bytes_max)
        self._method = pseudo.get(b":method", b"").decode("latin-1")
        if b":authority" in pseudo:  # h2 has seen to it that there is one, or a host, and that they agree
            self._headers["host"] = pseudo[b":authority"].decode("latin-1")
        if self._method == "CONNECT" or not target.startswith((b"/", b"*")):
            raise Refused(Invalid("the request target must be a path that starts with a slash"))
        self._path, self._query, _ = split_target(target)
        length = self._headers.get("content-length")
        if length is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 20):
                raise Refused(Invalid("the content-length is no number"))
            self._check_size(int(length))

    def _check_size(self, size: int) -> None:
        limits = self._registry.limits
        if size > limits.body_bytes_max:
            raise _too_large("the body is larger than this server reads", None, limits.body_bytes_max)
        if not self._registry.has_room(size - self.body_bytes):
            raise Refused(
                Overloaded("too many bodies are being read: try later", limit="bodies", max=limits.bodies_bytes_max)
            )

    def read_body(self, data: bytes) -> None:
        """Take in a part of the body. Raises Refused."""
        self._check_size(self.body_bytes + len(data))
        self.body_bytes += len(data)
        self._registry.body_bytes += len(data)
        self._body.append(data)

    def request(self, client: str) -> Request:
        """The whole request."""
        self.receiving = False
        body = b"".join(self._body)
        self._body = []
        return Request(self._method, self._path, query=self._query, headers=self._headers, body=body, client=client)

    @property
    def head_only(self) -> bool:
        """Whether the peer wants no body."""
        return self._method == "HEAD"

    def release_body(self) -> None:
        """The body is not needed any more."""
        self._registry.body_bytes -= self.body_bytes
        self.body_bytes = 0
        self._body = []

    def overdue(self, now_s: float) -> bool:
        """Whether the body comes too slowly."""
        limits = self._registry.limits
        allowed_s = limits.body_grace_ms / 1000 + self.body_bytes / limits.body_bytes_per_s_min
        return self.receiving and now_s - self.since_s > allowed_s

    def block(self) -> None:
        """The peer takes no more for now."""
        if self.blocked_since_s is None:
            limits = self._registry.limits
            self.blocked_since_s = self._registry.now_s
            self.blocked_allowed_s = limits.write_stall_ms / 1000 + len(self.out) / limits.body_bytes_per_s_min

    def blocked_too_long(self, now_s: float) -> bool:
        """Whether the peer has not taken what was there for too long."""
        return self.blocked_since_s is not None and now_s - self.blocked_since_s > self.blocked_allowed_s

    async def room(self) -> None:
        """Wait until there is room for more. Raises ConnectionError where the peer is gone."""
        while not self.gone and len(self.out) > self._registry.limits.write_buffer_bytes:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)
        if self.gone:
            raise ConnectionResetError("the peer is gone")

    def wake(self) -> None:
        """There may be room again, or never again."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None


def _too_large(message: str, status: int | None, limit: int) -> Refused:
    return Refused(Invalid(message, code="payload_too_large", max=limit), status=status)
