"""Where a topic's frames lie, one piece per segment, in arrays rather than objects.

A million single appends cost 24 bytes each here and nothing else. A piece goes with its segment, so no array is ever
shifted.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["Piece", "Spot", "cut", "find", "replace_frames", "spots"]

Spot = tuple[int, int, int, int]
"""A frame: (first seq, location, bytes of its blobs, log time of its append)."""


class Piece:
    """The frames of one topic in one segment, ascending by first seq.

    A frame answers for the seqs from its first one up to the next frame's; which of those are alive is not known here.
    """

    __slots__ = ("firsts", "offsets", "segment", "sizes", "times")

    def __init__(self, segment: int) -> None:
        self.segment = segment
        self.firsts = array("Q")
        self.offsets = array("I")
        self.sizes = array("I")
        self.times = array("Q")

    def spot(self, index: int) -> Spot:
        """Frame ``index`` of this piece."""
        location = self.segment << 32 | self.offsets[index]
        return self.firsts[index], location, self.sizes[index], self.times[index]

    def split(self, index: int) -> Piece:
        """Cut the frames from ``index`` on off into a piece of their own."""
        tail = Piece(self.segment)
        for name in ("firsts", "offsets", "sizes", "times"):
            column = getattr(self, name)
            setattr(tail, name, column[index:])
            del column[index:]
        return tail


def replace_frames(pieces: list[Piece], lo: int, hi: int, frame: Spot) -> None:
    """Put one frame in the place of all those whose first seq lies in ``[lo, hi)``; there may be none of them."""
    at = cut(pieces, lo, hi)
    first_seq, location, size, time_ms = frame
    before = pieces[at - 1] if at else None
    if before is None or before.segment != location >> 32:
        before = Piece(location >> 32)
        pieces.insert(at, before)
    before.firsts.append(first_seq)
    before.offsets.append(location & 0xFFFFFFFF)
    before.sizes.append(size)
    before.times.append(time_ms)


def cut(pieces: list[Piece], lo: int, hi: int) -> int:
    """Take the frames out that start in ``[lo, hi)``; return the index of the first piece that lies wholly behind
    them.
    """
    at = 0
    while at < len(pieces) and pieces[at].firsts[0] < hi:
        piece = pieces[at]
        start, stop = bisect_left(piece.firsts, lo), bisect_left(piece.firsts, hi)
        tail = piece.split(stop)
        piece.split(start)
        if not piece.firsts:
            del pieces[at]
            at -= 1
        at += 1
        if tail.firsts:
            pieces.insert(at, tail)
            break
    return at


def find(pieces: list[Piece], seq: int) -> tuple[int, int]:
    """The (piece, frame) indices that answer for ``seq``; the caller knows that it is alive."""
    if len(pieces) == 1:
        return 0, bisect_right(pieces[0].firsts, seq) - 1
    at = len(pieces) - 1
    while at > 0 and pieces[at].firsts[0] > seq:  # few pieces, and what is asked for is mostly at either end
        at -= 1
        if at > 8:
            at = max(bisect_right(pieces, seq, hi=at + 1, key=lambda piece: piece.firsts[0]) - 1, 0)
    return at, bisect_right(pieces[at].firsts, seq) - 1


def spots(pieces: list[Piece], lo: int, hi: int) -> Iterator[Spot]:
    """The frames that answer for seqs in ``[lo, hi)``, ascending."""
    if not pieces or lo >= hi:
        return
    at, index = find(pieces, lo)
    index = max(index, 0)
    while at < len(pieces):
        piece = pieces[at]
        while index < len(piece.firsts):
            if piece.firsts[index] >= hi:
                return
            yield piece.spot(index)
            index += 1
        at, index = at + 1, 0
