"""Counts HTTP/2 frames before they cost anything, so that a flood is met at its frames and not at its effects.

A frame header is nine bytes; reading them here is far cheaper than what a reset, a ping or a settings frame makes the
protocol library do, and no kind of frame, known or unknown, goes uncounted.
"""

from __future__ import annotations

from tenure.http.wire.limits import WireLimits

__all__ = ["PREFACE", "Flood", "FrameMeter"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_STREAM, _END_HEADERS = 1, 4


class Flood(Exception):
    """The peer sends more control frames than any use of ours explains."""


class FrameMeter:
    """Allows ``h2_control_frames_max`` frames without content at once; the allowance grows back with time and use."""

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
        """How much of the frame that has begun is still to come."""
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
        """Something real was sent: the peer may answer it with this many control frames."""
        self._control = max(self._control - frames, -float(self._limits.h2_control_frames_max))

    def refill(self, elapsed_s: float) -> None:
        """Time has passed."""
        if self._control > 0:
            self._control = max(0.0, self._control - elapsed_s * self._limits.h2_control_frames_per_s)
