"""Flood protection of HTTP/2: control frames are counted before they cost anything; and checks of headers.

A frame header is nine bytes; reading them here is far cheaper than what a reset, a ping or a settings frame makes the
protocol library do, and no kind of frame, known or unknown, goes uncounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tenure.http.wire.limits import WireLimits

__all__ = ["PREFACE", "BadHead", "Flood", "FrameMeter", "check_head", "check_trailers"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_STREAM, _END_HEADERS = 1, 4


class Flood(Exception):
    """The peer sends more control frames than any use of ours explains."""


class FrameMeter:
    """The allowance of frames without content: ``h2_control_frames_max`` at once; it grows back with time and use."""

    __slots__ = ("_block_bytes", "_control", "_head", "_limits", "_skip", "block_open")

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._head = b""
        self._skip = len(PREFACE)
        self._control = 0.0
        self._block_bytes = 0
        self.block_open = False
        """Whether a header block has begun and not ended."""

    @property
    def left_bytes(self) -> int:
        """The bytes of the current frame that are still to come."""
        return self._skip

    def feed(self, data: bytes) -> None:
        """Count the frames that begin in these bytes. Raises Flood."""
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            head = self._head + data[at : at + 9 - len(self._head)]
            at += len(head) - len(self._head)
            if len(head) < 9:
                self._head = head
                return
            self._head = b""
            self._skip = int.from_bytes(head[:3], "big")
            self._count(head[3], head[4], self._skip)

    def _count(self, kind: int, flags: int, length: int) -> None:
        if kind in (_HEADERS, _CONTINUATION):
            self.block_open = not flags & _END_HEADERS
            self._block_bytes = length if kind == _HEADERS else self._block_bytes + length
            if self._block_bytes > self._limits.header_bytes_max + self._limits.target_bytes_max:
                raise Flood("a header block is longer than the headers may be")
        if kind == _HEADERS or (kind == _DATA and (length or flags & _END_STREAM)):
            return
        self._control += 1
        if self._control > self._limits.h2_control_frames_max:
            raise Flood("more control frames than a client needs")

    def credit(self, frames: int) -> None:
        """Raise the allowance after content was sent: the peer may answer it with this many control frames."""
        self._control = max(self._control - frames, -float(self._limits.h2_control_frames_max))

    def refill(self, elapsed_s: float) -> None:
        """Raise the allowance by the time that has passed."""
        if self._control > 0:
            self._control = max(0.0, self._control - elapsed_s * self._limits.h2_control_frames_per_s)


Pairs = Iterable[tuple[bytes, bytes]]

_NAME: Final = re.compile(rb"[!-9;-@\[-~]+")
"""Visible characters without capitals and colons."""
_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_BLANKS: Final = (b" ", b"\t")


class BadHead(Exception):
    """The headers are no HTTP/2: the connection ends."""


def check_head(pairs: Pairs) -> None:
    """Raise BadHead unless these are the headers of a request."""
    pseudo: dict[bytes, bytes] = {}
    hosts: set[bytes] = set()
    begun = False
    for name, value in pairs:
        if name.startswith(b":"):
            if begun or name in pseudo or name not in _PSEUDO:
                raise BadHead("a pseudo-header is late, double or unknown")
            _check_value(value)
            pseudo[name] = value
        else:
            begun = True
            _check_field(name, value)
            if name == b"host":
                hosts.add(value)
    if b":authority" in pseudo:
        hosts.add(pseudo[b":authority"])
    if len(hosts) != 1:
        raise BadHead("there must be one authority or host")
    if pseudo.get(b":method") != b"CONNECT" and not (b":scheme" in pseudo and pseudo.get(b":path")):
        raise BadHead("a pseudo-header is missing")
    if not pseudo.get(b":method"):
        raise BadHead("the method is missing")


def check_trailers(pairs: Pairs) -> None:
    """Raise BadHead unless these are trailers."""
    for name, value in pairs:
        _check_field(name, value)


def _check_field(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None:
        raise BadHead("a header has no name, or one with characters that it may not have")
    if name in _OF_THE_CONNECTION or (name == b"te" and value.lower() != b"trailers"):
        raise BadHead("a header belongs to another protocol")
    _check_value(value)


def _check_value(value: bytes) -> None:
    if b"\0" in value or b"\n" in value or b"\r" in value or value.startswith(_BLANKS) or value.endswith(_BLANKS):
        raise BadHead("a header has a value with characters that it may not have")
