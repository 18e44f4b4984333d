"""Measuring the nesting depth of a JSON value, in one pass at the speed of C and in slices.

A loop over a million brackets in Python takes a twentieth of a second, so brackets are looked at eight at a time. What
eight of them do to the depth is two numbers: how far it rises among them (the peak), and where it is after them (the
change). Reading brackets as hexadecimal digits puts two of them into a byte; there are few distinct pairs of peak and
change, so that they are digits again, twice over.
"""

from __future__ import annotations

from binascii import unhexlify
from itertools import accumulate
from operator import add
from typing import Final

__all__ = ["DepthMeter"]

_OTHERS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_FOLD: Final = bytes.maketrans(b"[]{}", b"1010")
_DIGITS: Final = b"0123456789abcdef"
_OPENS: Final = ord("1")

Step = tuple[int, int]
"""What brackets do to the depth: change, peak."""


class DepthMeter:
    """The depth of valid JSON that is fed slice by slice; ``peak`` is the deepest nesting so far."""

    __slots__ = ("_depth", "_held", "_in_string", "peak")

    def __init__(self) -> None:
        self.peak = 0
        self._depth = 0
        self._in_string = False
        self._held = b""

    def feed(self, piece: bytes) -> None:
        """Measure the next slice, which may be cut anywhere."""
        brackets = self._outside(piece)
        rest = len(brackets) % 8
        even, odd = (brackets[:-rest], brackets[-rest:]) if rest else (brackets, b"")
        packed = unhexlify(even)
        for table in _TABLES:
            packed = unhexlify(packed.translate(table))
        depths = list(accumulate(memoryview(packed.translate(_CHANGES)).cast("b"), initial=self._depth))
        peak = max(map(add, depths, packed.translate(_PEAKS)), default=0)
        tail = list(accumulate((1 if bracket == _OPENS else -1 for bracket in odd), initial=depths[-1]))
        self.peak = max(self.peak, peak, *tail)
        self._depth = tail[-1]

    def _outside(self, piece: bytes) -> bytes:
        """Return the brackets outside of strings: ``1`` opens, ``0`` closes."""
        piece, self._held = self._held + piece, b""
        if b"\\" in piece:  # only strings have escapes, and a run of backslashes begins with one
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, self._held = piece[:-1], b"\\"
            piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        piece = piece.translate(_FOLD, _OTHERS)
        if self._in_string:
            piece = b'"' + piece
        self._in_string = piece.count(b'"') % 2 == 1
        # Two quotes side by side open or close nothing: without them the same brackets are inside of strings.
        piece = piece.replace(b'""', b"")
        return b"".join(piece.split(b'"')[::2]) if b'"' in piece else piece


def _pairs(steps: dict[int, Step]) -> dict[int, Step]:
    """Return the steps of two digits in one byte, from those of one digit."""
    return {
        high << 4 | low: (change + further, max(peak, change + higher))
        for high, (change, peak) in steps.items()
        for low, (further, higher) in steps.items()
    }


def _table(values: dict[int, int]) -> bytes:
    return bytes(values.get(byte, 0) & 0xFF for byte in range(256))


def _tables() -> tuple[list[bytes], bytes, bytes]:
    """Return what turns packed bytes into digits, once for two and once for four brackets; then changes and peaks."""
    tables: list[bytes] = []
    steps = _pairs({1: (1, 1), 0: (-1, 0)})
    for _ in range(2):
        kinds = sorted(set(steps.values()))
        tables.append(_table({byte: _DIGITS[kinds.index(step)] for byte, step in steps.items()}))
        steps = _pairs(dict(enumerate(kinds)))
    changes = _table({byte: change for byte, (change, _) in steps.items()})
    return tables, changes, _table({byte: peak for byte, (_, peak) in steps.items()})


_TABLES, _CHANGES, _PEAKS = _tables()
