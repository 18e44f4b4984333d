"""Server-sent events: frames, headers, and sending many frames in pieces.

A stream writes only through ``send``, which returns when there is room for more: so nothing is kept for a slow reader
beyond what it is being given (fault 33). A peer that went away silently is found by the next heartbeat that cannot be
delivered: after one heartbeat interval plus the socket's own time-out (fault 31).

``retry: 2000`` is the contract's. A browser comes back exactly after that, which after a restart means all of them
together; a client that can should add a random wait of up to as much again (fault 36).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from tenure.errors import Invalid, TenureError
from tenure.http.wire.errors import error_response
from tenure.http.wire.message import Headers, Request, Response, Send, Stream

__all__ = [
    "HEARTBEAT",
    "RETRY",
    "check_accept",
    "error_frame",
    "field",
    "frame",
    "send_in_pieces",
    "stream_response",
]

RETRY: Final = b"retry: 2000\n\n"
HEARTBEAT: Final = b": hb\n\n"
MEDIA_TYPE: Final = b"text/event-stream"

_HEADERS: Final[Headers] = [(b"x-accel-buffering", b"no")]
_PIECE_BYTES: Final = 256 * 1024
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_END_LETTERS: Final = {b"\n": b"n", b"\r": b"r", b"\r\n": b"c"}
_CHOICES_MAX: Final = 64
"""Media types of an Accept that are looked at."""

log = logging.getLogger("tenure.http")


def check_accept(request: Request) -> None:
    """Raise Invalid (406) unless the caller's Accept names an event stream.

    A range such as ``*/*`` is not enough, nor is no Accept at all: a prober, a link preview or a plain curl sends that,
    and a work stream leases jobs to every caller that opens it.
    """
    for choice in request.headers.get("accept", "").split(",", _CHOICES_MAX)[:_CHOICES_MAX]:
        kind, *parameters = (part.strip().lower() for part in choice.split(";"))
        if kind == "text/event-stream" and not any(_is_zero(parameter) for parameter in parameters):
            return
    raise Invalid(
        "this is an event stream, opened only by name: send the header Accept: text/event-stream", code="not_acceptable"
    )


def _is_zero(parameter: str) -> bool:
    """Return whether a parameter of an Accept excludes its media type (``q=0``)."""
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip() in ("0", "0.", "0.0", "0.00", "0.000")


def stream_response(request: Request, stream: Stream) -> Response:
    """Return the response of a stream. An error on the way becomes a last ``error`` frame; HEAD gets headers alone."""

    async def run(send: Send) -> None:
        try:
            await stream(send)
        except TenureError as error:
            await send(error_frame(error, request))
        except OSError:  # the peer is gone, or too slow: no error frame can reach it
            raise
        except Exception:
            log.exception("a stream failed", extra={"path_length": len(request.path)})
            fault = TenureError("the server met a fault of its own: report it, and connect again")
            await send(error_frame(fault, request))

    body = None if request.method == "HEAD" else run
    return Response(200, headers=list(_HEADERS), content_type=MEDIA_TYPE, stream=body)


def field(data: bytes) -> bytes:
    """Return ``data`` as the value of one frame. Where the JSON has several lines, each gets a ``data:`` of its own,
    and the reader joins them again.

    The standard joins them with LF, also where another line end stood between them. That is the same JSON, because a
    line end in it is white space; but what was put must come back to the byte. So where a CR is among the line ends, a
    field ``line-ends`` names each of them by a letter: n (LF), r (CR) or c (CRLF). Other readers ignore an unknown
    field.
    """
    if b"\r" not in data:
        return data.replace(b"\n", b"\ndata: ") if b"\n" in data else data
    ends = b"".join([_END_LETTERS[end] for end in _LINE_END.findall(data)])
    return b"%b\nline-ends: %b" % (_LINE_END.sub(b"\ndata: ", data), ends)


def frame(event: bytes, data: bytes, *, event_id: bytes | None = None) -> bytes:
    """Return one event as bytes."""
    if event_id is None:
        return b"event: %b\ndata: %b\n\n" % (event, field(data))
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, event, field(data))


def error_frame(error: TenureError, request: Request, **more: Any) -> bytes:
    """Return an ``error`` event: ``code`` is the status that the same error has as a response."""
    said = {"code": error_response(error, request).status, "error": error.code, "message": error.message}
    if error.detail:
        said["detail"] = error.detail
    return frame(b"error", msgspec.json.encode(said | more))


async def send_in_pieces(send: Callable[[bytes], Awaitable[None]], frames: list[bytes]) -> None:
    """Send frames in order, joined into pieces of a bounded size, waiting for room between them."""
    piece: list[bytes] = []
    size = 0
    for one in frames:
        piece.append(one)
        size += len(one)
        if size >= _PIECE_BYTES:
            await send(b"".join(piece))
            piece, size = [], 0
    if piece:
        await send(b"".join(piece))
