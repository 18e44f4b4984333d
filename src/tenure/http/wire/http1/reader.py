"""HTTP/1.1 requests from bytes, with every limit checked before more is read.

httptools does the grammar (strictly: no obsolete folding, no bare line feeds, one Content-Length, never together with
Transfer-Encoding); this module does the rest: it has each head admitted before its body is read, and assembles the
whole. The body of a request that was refused at its head is passed over where it is small.
"""

from __future__ import annotations

from collections.abc import Callable

import httptools

from tenure.errors import Invalid, Overloaded
from tenure.http.wire.bodies import Charge
from tenure.http.wire.body_parts import BodyParts
from tenure.http.wire.byte_pace import Pace
from tenure.http.wire.connections import Connections
from tenure.http.wire.encode import Refused, RefusedHead, split_target
from tenure.http.wire.errors import too_large
from tenure.http.wire.fair_turns import Caller
from tenure.http.wire.message import Admit, Request, Response
from tenure.http.wire.respond import Exchange

__all__ = ["Phase", "RequestReader"]

_COMMON = ("host", "content-length", "content-type", "accept", "authorization", "connection", "user-agent", "expect")
_NAMES = {name.encode(): name for name in _COMMON} | {name.title().encode(): name for name in _COMMON}
_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")}
_ONCE = frozenset({"host", "expect"})


class Phase:
    """The part of a request that the next byte belongs to. Plain numbers: they are compared on every read."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class RequestReader:
    """The parser of one connection; it gives each whole request to ``deliver`` as an Exchange.

    ``admit`` is called at the end of each head, ``invite`` where the peer waits for 100 Continue. ``since_s`` is when
    the phase began, ``heads`` counts whole heads, ``body_bytes`` what has come of the body. ``caller`` is charged for
    the time that the next bytes take: it is the one of the last head. ``is_at_door`` is set while the last of what was
    read was refused there. A body that is kept is charged
    to the caller as it comes; the receiver of the exchange releases it.
    """

    __slots__ = (
        "_account",
        "_admit",
        "_body",
        "_deliver",
        "_exchange",
        "_feed",
        "_header_bytes",
        "_headers",
        "_invite",
        "_lines",
        "_overhead_bytes",
        "_own",
        "_pace",
        "_parser",
        "_raw_left",
        "_refused",
        "_registry",
        "_target",
        "body_bytes",
        "caller",
        "client",
        "heads",
        "is_at_door",
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
        admit: Admit,
        deliver: Callable[[Exchange], None],
        invite: Callable[[], None],
    ) -> None:
        self.client = client
        self.over = False
        self._registry = registry
        self._account = client
        self.caller = self._own = Caller(registry.fair)
        self.is_at_door = False
        self._admit = admit
        self._deliver = deliver
        self._invite = invite
        self._refused: Refused | None = None
        self._raw_left = 0
        self._exchange: Exchange | None = None
        self._body = BodyParts()
        self._pace: Pace | None = None
        self.heads = 0
        self.messages = 0
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
                return  # bytes after the last request of the connection
            raise self._refused or Refused(Invalid(f"this is not HTTP as it should be: {error}")) from error
        if self.messages == messages and self.phase == phase:
            self._count_unseen(len(data), self.body_bytes - body_bytes)

    def _count_unseen(self, fed_bytes: int, body_bytes: int) -> None:
        """Count bytes that led to no callback yet: a header that does not end, chunks that are mostly not content."""
        limits = self._registry.limits
        if self.phase == Phase.HEAD:
            self._overhead_bytes += fed_bytes
            if self._overhead_bytes > limits.header_bytes_max + limits.target_bytes_max + 4 * limits.headers_max:
                raise _too_large("the head", 431, limits.header_bytes_max)
        elif self.phase == Phase.BODY:
            self._overhead_bytes += fed_bytes - body_bytes
            if self._overhead_bytes > limits.chunk_overhead_bytes_max + 8 * self.body_bytes:
                raise Refused(Invalid("the body is chunked so finely that it is hardly a body: send larger chunks"))

    def _pass_upgrade(self, data: bytes | memoryview, end: int) -> None:
        """Ignore a requested upgrade: continue in HTTP/1.1, also with the body that the parser left out."""
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

    def release(self) -> None:
        """Forget a half-read body, and why it was refused."""
        self._refused = None
        exchange, self._exchange = self._exchange, None
        self._body = BodyParts()
        if exchange is not None:
            exchange.release()

    def lose(self) -> None:
        """Release everything, because the peer is gone. The parser refers to the reader, so it is dropped: the garbage
        collector would free both too late.
        """
        self.release()
        del self._parser, self._feed

    @property
    def account(self) -> str:
        """The account of the request whose body is being read; "" where it has none, or no head was read yet."""
        return "" if self._exchange is None else self._exchange.request.account

    def lapsed(self) -> Refused | None:
        """Return the refusal of a request whose body is on its way and whose key was removed meanwhile, else None."""
        exchange = self._exchange
        refusal = exchange.admission.lapsed() if exchange is not None and exchange.admission is not None else None
        return RefusedHead(refusal, exchange.request) if exchange is not None and refusal is not None else None

    def body_too_slow(self, now_s: float) -> bool:
        """Return whether the body comes more slowly than it must; called on ticks while bytes are read."""
        limits = self._registry.limits
        if self._pace is None:
            self._pace = Pace(self.since_s)
        return self._pace.too_slow(
            now_s, self.body_bytes, window_ms=limits.body_grace_ms, bytes_per_s_min=limits.body_bytes_per_s_min
        )

    def pass_over(self, now_s: float) -> None:
        """Do not count the time in which nothing was read."""
        self.since_s = now_s
        if self._pace is not None:
            self._pace.skip(now_s)

    # What httptools calls.

    def on_message_begin(self) -> None:
        self.phase = Phase.HEAD
        self.since_s = self._registry.now_s
        self.messages += 1
        self.body_bytes = 0
        self._target = b""
        self._headers: dict[str, str] = {}
        self._lines = 0
        self._header_bytes = 0
        self._overhead_bytes = 0
        self._pace = None

    def on_url(self, part: bytes) -> None:
        self._target = self._target + part if self._target else part
        limit = self._registry.limits.target_bytes_max
        if len(self._target) > limit:
            self._refuse(_too_large("the target", 414, limit))

    def on_header(self, name: bytes, value: bytes) -> None:
        limits = self._registry.limits
        self._lines += 1
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > limits.header_bytes_max or self._lines > limits.headers_max:
            self._refuse(_too_large("the head", 431, limits.header_bytes_max))
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
        old = version == "1.0"
        if version != "1.1" and not old:
            raise Refused(Invalid("this server speaks HTTP/1.0, HTTP/1.1 and HTTP/2"), status=505)
        path, query, authority = split_target(self._target)
        if authority is not None:
            headers["host"] = authority
        if not old and "host" not in headers:
            raise Refused(Invalid("HTTP/1.1 needs a Host header"))
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None and (old or length is not None or coding.lower() != "chunked"):
            raise Refused(Invalid("the only transfer coding is chunked, on HTTP/1.1, without a Content-Length"))
        upgrade, method = parser.should_upgrade(), parser.get_method()
        if upgrade and (coding is not None or method == b"CONNECT"):
            raise Refused(Invalid("this server does not upgrade or tunnel: send the request without it"))
        size = int(length) if length else 0
        request = Request(
            _METHODS.get(method) or method.decode("latin-1"), path, query=query, headers=headers, client=self.client
        )
        self._exchange = Exchange(request, keep_alive=parser.should_keep_alive(), old=old)
        self._raw_left = size if upgrade else 0
        self._overhead_bytes = 0
        self.heads += 1
        self.phase = Phase.BODY
        self.since_s = self._registry.now_s
        self._admit_head(self._exchange, size, chunked=coding is not None)

    def _admit_head(self, exchange: Exchange, size: int, *, chunked: bool) -> None:
        """Have the head admitted, and make room for the body that it announces. Raises Refused."""
        request = exchange.request
        invited = "expect" in request.headers and (size or chunked) and not exchange.old and _waits(request)
        outcome = self._admit(request)
        if isinstance(outcome, Response):
            self.is_at_door = not request.account
            self._charge_to(request)
            # A peer that waits for 100 Continue may send the body or not, so what comes next would be ambiguous.
            if chunked or invited or size > self._registry.limits.small_body_bytes:
                raise RefusedHead(outcome, request)
            exchange.response = outcome
            return
        exchange.admission = outcome
        request.account, self.is_at_door = outcome.account, False
        self._charge_to(request)
        request.caller = self.caller
        if size or chunked:
            if size > outcome.body_bytes_max:
                raise Refused(too_large("the body", outcome.body_bytes_max))
            try:
                exchange.charge = Charge(self._registry.bodies, outcome.account, announced_bytes=size)
            except Overloaded as full:
                raise Refused(full) from full
        if invited:
            self._invite()

    def _charge_to(self, request: Request) -> None:
        """Have what is read from now on charged to the caller of this request."""
        account = request.account
        if account != self._account:
            self._account = account
            self.caller = self._own if account in ("", self.client) else self._registry.fair.named(account)

    def on_body(self, part: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None
        self.body_bytes += len(part)
        admission, charge = exchange.admission, exchange.charge
        if admission is None or charge is None:
            return  # refused at its head: passed over
        if self.body_bytes > admission.body_bytes_max:
            self._refuse(Refused(too_large("the body", admission.body_bytes_max)))
        try:
            charge.grow(len(part))
        except Overloaded as full:
            self._refuse(Refused(full))
        self._body.add(part)

    def on_message_complete(self) -> None:
        if not self._raw_left:
            self._complete()

    def _complete(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        exchange.body = self._body.take()
        self.phase = Phase.BETWEEN
        self._exchange = None
        self.over = not exchange.keep_alive
        self._deliver(exchange)

    def _refuse(self, refused: Refused) -> None:
        """Stop the parser from inside a callback; ``feed`` raises it again outside."""
        self._refused = refused
        raise refused


def _waits(request: Request) -> bool:
    return request.headers["expect"].lower() == "100-continue"


def _too_large(what: str, status: int, limit: int) -> Refused:
    return Refused(too_large(what, limit), status=status)
