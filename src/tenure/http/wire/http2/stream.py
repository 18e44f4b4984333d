"""One HTTP/2 stream: its request as it comes, its response as it goes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from tenure.errors import Invalid, Overloaded
from tenure.http.wire.bodies import Charge
from tenure.http.wire.body_parts import BodyParts
from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import Refused, split_target
from tenure.http.wire.errors import too_large
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.message import Admission, Body, Request, Response, SharedBytes
from tenure.http.wire.respond import Pending, Work

__all__ = ["Http2Sender", "Http2Stream", "OutQueue"]


_WHOLE_BYTES_MAX: Final = 64 * 1024


class OutQueue:
    """A queue of bytes; its length is how many there are."""

    __slots__ = ("_at", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._at = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, data: bytes) -> None:
        """Add bytes at the end."""
        if data:
            self._parts.append(data)
            self._size += len(data)

    def take(self, size: int) -> bytes:
        """Remove ``size`` bytes from the beginning, or all there are, and return them."""
        taken: list[bytes] = []
        left = size = min(size, self._size)
        while left:
            first, end = self._parts[0], self._at + left
            part = first[self._at : end]
            left -= len(part)
            self._at = end
            if end >= len(first):
                self._parts.popleft()
                self._at = 0
            taken.append(part)
        if self._parts and 2 * self._at > len(self._parts[0]) > _WHOLE_BYTES_MAX:
            self._parts[0], self._at = self._parts[0][self._at :], 0  # what was taken is not kept for what was not
        self._size -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def clear(self) -> None:
        """Remove everything."""
        self._parts.clear()
        self._at = self._size = 0


class Http2Stream:
    """Both directions of a stream. ``out`` holds bytes that flow control or the socket has not let through."""

    __slots__ = (
        "_body",
        "_body_pace",
        "_charge",
        "_headers",
        "_length",
        "_method",
        "_out_pace",
        "_path",
        "_query",
        "_registry",
        "_room",
        "account",
        "admission",
        "at_door",
        "blocked",
        "body_bytes",
        "caller",
        "ended",
        "gone",
        "number",
        "opened",
        "out",
        "pending",
        "receiving",
        "refusal",
        "sent_bytes",
    )

    def __init__(self, number: int, registry: Connections) -> None:
        self.number = number
        self.admission: Admission | None = None
        self.account = ""
        """Who is charged for it; "" while that is not known, and where it was refused at the door."""
        self.at_door: Callable[[], None] | None = None
        """Has the answer leave that waits at the door."""
        self.caller: Caller | None = None
        self.refusal: Response | None = None
        """The answer of a request that was refused at its head, until its small body has been passed over."""
        self.body_bytes = 0
        self.receiving = True
        self.opened = False
        """Whether its response has begun."""
        self.ended = False
        """Whether its response is complete, in ``out`` or sent."""
        self.gone = False
        self.pending: Pending | Work | None = None
        self.out = OutQueue()
        self.sent_bytes = 0
        self.blocked = False
        """Whether the peer has not taken all of ``out``."""
        self._out_pace: Pace | None = None
        self._body_pace = Pace(registry.now_s)
        self._charge: Charge | None = None
        self._length: int | None = None
        self._registry = registry
        self._room: asyncio.Future[None] | None = None
        self._body = BodyParts()
        self._headers: dict[str, str] = {}
        self._method = self._path = self._query = ""

    def read_head(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in the headers. Raises Refused."""
        limits = self._registry.limits
        pseudo: dict[bytes, bytes] = {}
        fields: dict[bytes, list[bytes]] = {}
        total_bytes = lines = 0
        for name, value in pairs:
            lines += 1
            total_bytes += len(name) + len(value)
            if name.startswith(b":"):
                pseudo[name] = value
            else:
                fields.setdefault(name, []).append(value)
        target = pseudo.get(b":path", b"")
        if len(target) > limits.target_bytes_max:
            raise _too_large("the target", 414, limits.target_bytes_max)
        if total_bytes > limits.header_bytes_max + limits.target_bytes_max or lines > limits.headers_max:
            raise _too_large("the head", 431, limits.header_bytes_max)
        self._headers = {name.decode(): b", ".join(values).decode("latin-1") for name, values in fields.items()}
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
            self._length = int(length)

    def request(self, client: str) -> Request:
        """Return the request, without its body."""
        return Request(self._method, self._path, query=self._query, headers=self._headers, client=client)

    def expect_body(self, admission: Admission) -> None:
        """Make room for the body of an admitted request. Raises Refused."""
        self.admission = admission
        if self._length is not None and self._length > admission.body_bytes_max:
            raise Refused(too_large("the body", admission.body_bytes_max))
        try:
            self._charge = Charge(self._registry.bodies, admission.account, announced_bytes=self._length or 0)
        except Overloaded as full:
            raise Refused(full) from full

    @property
    def passes_over(self) -> bool:
        """Whether an unwanted body is so small, by its length, that it is read and discarded."""
        return self._length is not None and self._length <= self._registry.limits.small_body_bytes

    def read_body(self, data: bytes) -> None:
        """Take in a part of the body. Raises Refused."""
        self.body_bytes += len(data)
        if self.admission is None or self._charge is None:
            return
        if self.body_bytes > self.admission.body_bytes_max:
            raise Refused(too_large("the body", self.admission.body_bytes_max))
        try:
            self._charge.grow(len(data))
        except Overloaded as full:
            raise Refused(full) from full
        self._body.add(data)

    def body(self) -> Body:
        """Return the whole body, which is complete."""
        self.receiving = False
        return self._body.take()

    @property
    def head_only(self) -> bool:
        """Whether the peer wants no body."""
        return self._method == "HEAD"

    def release_body(self) -> None:
        """Free the body, which is not needed any more."""
        self._body = BodyParts()
        if self._charge is not None:
            self._charge.release()

    def body_too_slow(self, now_s: float) -> bool:
        """Return whether the body comes more slowly than it must; called on ticks while bytes are read."""
        limits = self._registry.limits
        return self.receiving and self._body_pace.too_slow(
            now_s, self.body_bytes, window_ms=limits.body_grace_ms, bytes_per_s_min=limits.body_bytes_per_s_min
        )

    def pass_over(self, now_s: float) -> None:
        """Do not count the time in which nothing was read."""
        self._body_pace.skip(now_s)

    def block(self) -> None:
        """Measure from now on how fast the peer takes the response: it takes no more at the moment."""
        if not self.blocked:
            self.blocked, self._out_pace = True, Pace(self._registry.now_s, self.sent_bytes)

    def taken_too_slowly(self, now_s: float) -> bool:
        """Return whether the peer takes the response more slowly than it must."""
        limits = self._registry.limits
        return (
            self.blocked
            and self._out_pace is not None
            and self._out_pace.too_slow(
                now_s,
                self.sent_bytes,
                window_ms=limits.write_stall_ms,
                bytes_per_s_min=limits.body_bytes_per_s_min,
            )
        )

    @property
    def has_room(self) -> bool:
        """Whether the peer has taken so much that more may be put."""
        return len(self.out) <= self._registry.limits.write_buffer_bytes

    async def room(self) -> None:
        """Wait until there is room for more. Raises ConnectionError where the peer is gone."""
        while not self.gone and not self.has_room:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)
        if self.gone:
            raise ConnectionResetError("the peer is gone")

    def wake(self) -> None:
        """Wake the stream that waits for room: there may be some, or its peer is gone."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None


class Http2Sender:
    """The sending end of a response that is a stream. ``put`` adds bytes to it and sends what can be sent."""

    __slots__ = ("_put", "_stream")

    def __init__(self, stream: Http2Stream, put: Callable[[Http2Stream, bytes], None]) -> None:
        self._stream = stream
        self._put = put

    async def __call__(self, data: bytes) -> None:
        """Send bytes; return when there is room for more."""
        await self._stream.room()
        self._put(self._stream, data)
        await self._stream.room()

    def offer(self, shared: SharedBytes) -> bool:
        """Send bytes where there is room for them."""
        if self._stream.gone or not self._stream.has_room:
            return False
        self._put(self._stream, shared.data)
        return True


def _too_large(what: str, status: int, limit: int) -> Refused:
    return Refused(too_large(what, limit), status=status)
