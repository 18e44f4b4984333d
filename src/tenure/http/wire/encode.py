"""Parsing request targets, and encoding the heads of responses."""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

from tenure.errors import Invalid, TenureError
from tenure.http.wire.errors import error_response
from tenure.http.wire.message import Headers, Request, Response

__all__ = [
    "BODILESS",
    "Refused",
    "RefusedHead",
    "all_headers",
    "encode_response",
    "encode_stream_head",
    "is_sound",
    "split_target",
]

BODILESS = frozenset({204, 304})
"""Statuses that never have a body."""

_GUARDS: Headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Sent with every response that does not say otherwise: answers hold payloads, and none is a page or a script."""
_GUARD_LINES = b"".join(b"%b: %b\r\n" % pair for pair in _GUARDS)
_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_VISIBLE = re.compile(rb"[\x21-\x7e]+")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SLASH = re.compile(rb"%2[Ff]")


class Refused(Exception):
    """A request that the wire itself refuses: it is answered with ``error`` and the connection ends."""

    request: Request | None = None
    """The request, where its head was understood."""

    def __init__(self, error: TenureError, *, status: int | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status

    def response(self) -> Response:
        """Return the error body of the contract, under the status that HTTP has for the case."""
        response = error_response(self.error, Request("GET", "/"))
        if self.status is not None:
            response.status = self.status
        return response

    def forget_frames(self) -> None:
        """Drop the traceback: its frames hold what was read, until the collector runs."""
        self.__traceback__ = self.__cause__ = self.__context__ = None


class RefusedHead(Refused):
    """A request that was refused at its head, with a body too large to pass over: it is answered and the connection
    ends.
    """

    def __init__(self, refusal: Response, request: Request) -> None:
        Exception.__init__(self, "refused at the head")
        self._refusal = refusal
        self.request = request

    def response(self) -> Response:
        return self._refusal


def split_target(target: bytes) -> tuple[str, str, str | None]:
    """Split a request target: decoded path, raw query, and the authority where the target names one.

    An escaped slash stays escaped, so that it never separates segments: no name may hold a percent sign, so a route
    that sees one refuses it. Raises Refused for what is no target, for a broken escape and for bad UTF-8. Clients ask
    for the same targets again and again, so short ones are remembered.
    """
    return _split_known(target) if len(target) <= 256 else _split(target)


def _split(target: bytes) -> tuple[str, str, str | None]:
    if _VISIBLE.fullmatch(target) is None or b"#" in target:
        raise Refused(Invalid("the request target holds characters that must be percent-encoded"))
    authority = None
    if not target.startswith(b"/"):
        if target == b"*":
            return "*", "", None
        scheme, found, rest = target.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https"):
            raise Refused(Invalid("the request target must be a path that starts with a slash"))
        host, _, rest = rest.partition(b"/")
        authority, target = host.decode(), b"/" + rest
    path, _, query = target.partition(b"?")
    return decode_path(path), query.decode(), authority


_split_known = lru_cache(1_024)(_split)


def decode_path(path: bytes) -> str:
    """Percent-decode a path, segment by segment in effect: what was escaped as a slash stays ``%2F``."""
    if b"%" not in path:
        return path.decode()
    if _BAD_ESCAPE.search(path) is not None:
        raise Refused(Invalid("a percent sign in the path must be followed by two hexadecimal digits"))
    try:
        return unquote_to_bytes(_SLASH.sub(b"%252F", path)).decode()
    except UnicodeDecodeError as error:
        raise Refused(Invalid("the path is not valid UTF-8 once decoded")) from error


def encode_response(response: Response, *, date: bytes, connection: bytes = b"", head_only: bool = False) -> bytes:
    """Encode a response with its length as HTTP/1.1. ``connection`` is a whole header line or nothing."""
    status, body = response.status, response.body
    extra = _extra(response) if response.headers else _GUARD_LINES
    if status in BODILESS:
        return b"%b%b%b%b\r\n" % (_LINES[status], date, extra, connection)
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b\r\n%b" % (
        _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status,
        response.content_type,
        len(body),
        date,
        extra,
        connection,
        b"" if head_only else body,
    )


def encode_stream_head(response: Response, *, date: bytes, framing: bytes) -> bytes:
    """Encode the head of a response of unknown length; ``framing`` is the header line that says how it will end."""
    return b"%bcontent-type: %b\r\n%b%b%b\r\n" % (
        _LINES[response.status],
        response.content_type,
        date,
        _extra(response),
        framing,
    )


def is_sound(response: Response) -> bool:
    """Return whether no header of a response breaks out of its line."""
    return not any(b"\n" in part or b"\r" in part or b"\0" in part for pair in response.headers for part in pair)


def _extra(response: Response) -> bytes:
    if not is_sound(response):
        raise ValueError("a response header holds a line break")
    return b"".join(b"%b: %b\r\n" % pair for pair in all_headers(response))


def all_headers(response: Response) -> Headers:
    """Return the headers of a response, and the security headers that it does not set itself."""
    if not response.headers:
        return _GUARDS
    named = {name for name, _ in response.headers}
    return [*response.headers, *(pair for pair in _GUARDS if pair[0] not in named)]
