"""HTTP/1.1 requests from bytes, with every limit checked before more is read.

httptools does the grammar (strictly: no obsolete folding, no bare line feeds, one Content-Length, never together with
Transfer-Encoding); this module does the rest, and assembles a whole ``Request``.
"""

from __future__ import annotations

from collections.abc import Callable

import httptools

from tenure.errors import Invalid, Overloaded
from tenure.http.connections import Connections
from tenure.http.message import Request
from tenure.http.wire import Refused, split_target

__all__ = ["Phase", "RequestReader"]

_COMMON = ("host", "content-length", "content-type", "accept", "authorization", "connection", "user-agent", "expect")
_NAMES = {name.encode(): name for name in _COMMON} | {name.title().encode(): name for name in _COMMON}
_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")}
_ONCE = frozenset({"host", "expect"})


class Phase:
    """Where in a request the next byte belongs. Plain numbers: they are compared on every read."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class RequestReader:
    """Gives each whole request to ``deliver(request, keep_alive, old)``; ``old`` means HTTP/1.0.

    ``invite`` is called where the peer waits for leave to send its body. ``since_s`` is when the phase began. A body's
    bytes are charged to the registry as they come; whoever takes the request gives them back.
    """

    __slots__ = (
        "_body",
        "_deliver",
        "_feed",
        "_header_bytes",
        "_headers",
        "_invite",
        "_keep_alive",
        "_lines",
        "_method",
        "_old",
        "_overhead_bytes",
        "_parser",
        "_path",
        "_query",
        "_raw_left",
        "_refused",
        "_registry",
        "_target",
        "_upgrade",
        "body_bytes",
        "client",
        "messages",
        "over",
        "phase",
        "since_s",
    )

    def __init__(
        self,
        registry: Connections,
        *,
        client: str,
        deliver: Callable[[Request, bool, bool], None],
        invite: Callable[[], None],
    ) -> None:
        self.client = client
        self.phase = Phase.BETWEEN
        self.since_s = registry.now_s
        self.body_bytes = 0
        self.messages = 0
        self.over = False
        self._registry = registry
        self._deliver = deliver
        self._invite = invite
        self._refused: Refused | None = None
        self._raw_left = 0
        self._body: list[bytes] = []
        self.on_message_begin()
        self.phase, self.messages = Phase.BETWEEN, 0
        self._renew()

    def _renew(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._feed = self._parser.feed_data

    def feed(self, data: bytes | memoryview) -> None:
        """Take in bytes. Raises Refused; after that, and after ``over`` is set, nothing more may be fed."""
        messages, body_bytes, phase = self.messages, self.body_bytes, self.phase
        if self._raw_left:
            self._feed_raw(data)
            return
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_upgrade(data, upgrade.args[0])
            return
        except httptools.HttpParserError as error:
            if self.over and self._refused is None:
                return  # bytes behind the last request of the connection
            raise self._refused or Refused(Invalid(f"this is not HTTP as it should be: {error}")) from error
        if self.messages == messages and self.phase == phase:
            self._count_unseen(len(data), self.body_bytes - body_bytes)

    def _count_unseen(self, fed_bytes: int, body_bytes: int) -> None:
        """Bytes that led to no callback yet: a header that does not end, chunks that are mostly not content."""
        limits = self._registry.limits
        if self.phase == Phase.HEAD:
            self._overhead_bytes += fed_bytes
            if self._overhead_bytes > limits.header_bytes_max + limits.target_bytes_max + 4 * limits.headers_max:
                raise _too_large("the headers are larger than this server reads", 431, limits.header_bytes_max)
        elif self.phase == Phase.BODY:
            self._overhead_bytes += fed_bytes - body_bytes
            if self._overhead_bytes > limits.chunk_overhead_bytes_max + 8 * self.body_bytes:
                raise Refused(Invalid("the body is chunked so finely that it is hardly a body: send larger chunks"))

    def _pass_upgrade(self, data: bytes | memoryview, end: int) -> None:
        """An upgrade was asked for and is not given: go on in HTTP/1.1, also with the body the parser left out."""
        self._renew()
        if end < len(data) and not self.over:
            self.feed(data[end:])

    def _feed_raw(self, data: bytes | memoryview) -> None:
        part = bytes(data[: self._raw_left])
        self._raw_left -= len(part)
        self.on_body(part)
        if not self._raw_left:
            self._complete()
            if len(part) < len(data) and not self.over:
                self.feed(data[len(part) :])

    def release(self) -> int:
        """Forget a half-read body; the number of bytes it was charged."""
        charged, self.body_bytes = self.body_bytes, 0
        self._body = []
        return charged

    # What httptools calls.

    def on_message_begin(self) -> None:
        self.phase = Phase.HEAD
        self.since_s = self._registry.now_s
        self.messages += 1
        self._target = b""
        self._headers: dict[str, str] = {}
        self._lines = 0
        self._header_bytes = 0
        self._overhead_bytes = 0
        self._body = []
        self._upgrade = False
        self._old = False
        self._method = self._path = self._query = ""
        self._keep_alive = False

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part
        limit = self._registry.limits.target_bytes_max
        if len(self._target) > limit:
            self._refuse(_too_large("the path and query are longer than this server reads", 414, limit))

    def on_header(self, name: bytes, value: bytes) -> None:
        limits = self._registry.limits
        self._lines += 1
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > limits.header_bytes_max or self._lines > limits.headers_max:
            self._refuse(_too_large("the headers are larger than this server reads", 431, limits.header_bytes_max))
        if self.phase == Phase.BODY:
            return  # a trailer: counted, not kept
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        headers = self._headers
        if key in headers:
            if key in _ONCE:
                self._refuse(Refused(Invalid(f"the header {key} came twice: send it once")))
            headers[key] = f"{headers[key]}, {value.decode('latin-1')}"
        else:
            headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        try:
            self._check_head()
        except Refused as refused:
            self._refuse(refused)

    def _check_head(self) -> None:
        headers, parser = self._headers, self._parser
        version = parser.get_http_version()
        self._old = version == "1.0"
        if version != "1.1" and not self._old:
            raise Refused(Invalid("this server speaks HTTP/1.0, HTTP/1.1 and HTTP/2"), status=505)
        self._path, self._query, authority = split_target(self._target)
        if authority is not None:
            headers["host"] = authority
        if not self._old and "host" not in headers:
            raise Refused(Invalid("HTTP/1.1 needs a Host header"))
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None and (self._old or length is not None or coding.lower() != "chunked"):
            raise Refused(Invalid("the only transfer coding is chunked, on HTTP/1.1, without a Content-Length"))
        self._upgrade = parser.should_upgrade()
        if self._upgrade and (coding is not None or parser.get_method() == b"CONNECT"):
            raise Refused(Invalid("this server does not upgrade or tunnel: send the request without it"))
        size = int(length) if length else 0
        self._check_size(size)
        self._method = _METHODS.get(parser.get_method()) or parser.get_method().decode("latin-1")
        self._keep_alive = parser.should_keep_alive()
        self._raw_left = size if self._upgrade else 0
        self._overhead_bytes = 0
        self.phase = Phase.BODY
        self.since_s = self._registry.now_s
        if (size or coding is not None) and not self._old and headers.get("expect", "").lower() == "100-continue":
            self._invite()

    def _check_size(self, size: int) -> None:
        limits = self._registry.limits
        if size > limits.body_bytes_max:
            raise _too_large("the body is larger than this server reads", None, limits.body_bytes_max)
        if size and not self._registry.has_room(size):
            raise Refused(
                Overloaded("too many bodies are being read: try later", limit="bodies", max=limits.bodies_bytes_max)
            )

    def on_body(self, part: bytes) -> None:
        size = self.body_bytes + len(part)
        if size > self._registry.limits.body_bytes_max or not self._registry.has_room(len(part)):
            try:
                self._check_size(max(size, 1))
            except Refused as refused:
                self._refuse(refused)
        self.body_bytes = size
        self._registry.body_bytes += len(part)
        self._body.append(part)

    def on_message_complete(self) -> None:
        if not self._raw_left:
            self._complete()

    def _complete(self) -> None:
        body = self._body
        request = Request(
            self._method,
            self._path,
            query=self._query,
            headers=self._headers,
            body=body[0] if len(body) == 1 else b"".join(body),
            client=self.client,
        )
        self.phase = Phase.BETWEEN
        self.body_bytes = 0
        self._body = []
        self.over = not self._keep_alive
        self._deliver(request, self._keep_alive, self._old)

    def _refuse(self, refused: Refused) -> None:
        """Stop the parser from inside a callback; ``feed`` raises it again outside."""
        self._refused = refused
        raise refused


def _too_large(message: str, status: int | None, limit: int) -> Refused:
    return Refused(Invalid(message, code="payload_too_large", max=limit), status=status)
