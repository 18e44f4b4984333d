"""The frame index of a topic: the location of its frames, one `SegmentIndex` per segment, in arrays not objects.

A million single appends cost 24 bytes each here and nothing else. The index of a segment goes with the segment, so no
array is ever shifted. Most of them are short: with many topics, each has a frame or two in a segment. So one starts as
a packed row of bytes, and gets its arrays once it has more frames than that is good for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, Self

__all__ = [
    "FramePlace",
    "SegmentIndex",
    "ShortIndex",
    "WideIndex",
    "add_frame",
    "cut",
    "find",
    "make_index",
    "places",
    "replace_frames",
]

FramePlace = tuple[int, int, int, int]
"""A frame and its place: (first seq, location, bytes of its blobs, log time of its append)."""

_SHORT_MAX: Final = 4
"""How many frames the index of a segment has at most before it gets arrays."""
_FRAME_BYTES: Final = 24
_SEGMENT: Final = Struct("<I")
#: By the number of frames: segment, then the columns as a wide index has them.
_LAYOUTS: Final = [Struct(f"<I{n}Q{n}I{n}I{n}Q") for n in range(_SHORT_MAX + 1)]


class WideIndex:
    """The frames of one topic in one segment, ascending by first seq.

    A frame answers for the seqs from its first one up to the next frame's; which of those are alive is not known here.
    """

    __slots__ = ("firsts", "offsets", "segment", "sizes", "times_ms")

    def __init__(
        self,
        segment: int,
        firsts: Sequence[int] = (),
        offsets: Sequence[int] = (),
        sizes: Sequence[int] = (),
        times_ms: Sequence[int] = (),
    ) -> None:
        self.segment = segment
        self.firsts = array("Q", firsts)
        self.offsets = array("I", offsets)
        self.sizes = array("I", sizes)
        self.times_ms = array("Q", times_ms)

    def cut_front(self, count: int) -> None:
        """Remove the first frames in place: what is left moves once, and no array is allocated."""
        for column in (self.firsts, self.offsets, self.sizes, self.times_ms):
            del column[:count]

    def place(self, index: int) -> FramePlace:
        """Return frame ``index`` of this segment."""
        location = self.segment << 32 | self.offsets[index]
        return self.firsts[index], location, self.sizes[index], self.times_ms[index]


class ShortIndex(bytes):
    """The index of a few frames in one bytes object, with the same columns.

    It takes 80 bytes for its first frame and 24 for each other, where four arrays take 400.
    """

    __slots__ = ()

    @classmethod
    def of(cls, segment: int, *columns: Sequence[int]) -> Self:
        """Pack the columns: firsts, offsets, sizes, times."""
        firsts, offsets, sizes, times_ms = columns
        return cls(_LAYOUTS[len(firsts)].pack(segment, *firsts, *offsets, *sizes, *times_ms))

    @property
    def segment(self) -> int:
        return _SEGMENT.unpack_from(self)[0]  # type: ignore[no-any-return]

    @property
    def firsts(self) -> Sequence[int]:
        return self._column(0)

    @property
    def offsets(self) -> Sequence[int]:
        return self._column(1)

    @property
    def sizes(self) -> Sequence[int]:
        return self._column(2)

    @property
    def times_ms(self) -> Sequence[int]:
        return self._column(3)

    def _column(self, number: int) -> Sequence[int]:
        n = len(self) // _FRAME_BYTES
        return _LAYOUTS[n].unpack(self)[1 + number * n : 1 + (number + 1) * n]

    def place(self, index: int) -> FramePlace:
        """Return frame ``index`` of this segment."""
        n = len(self) // _FRAME_BYTES
        segment, *columns = _LAYOUTS[n].unpack(self)
        first, offset, size, time_ms = columns[index::n]
        return first, segment << 32 | offset, size, time_ms


SegmentIndex = ShortIndex | WideIndex
"""The frames of one topic in one segment. Which of the two forms it has depends on their number alone."""


def make_index(segment: int, columns: Sequence[Sequence[int]]) -> SegmentIndex:
    """Return the index with these columns: firsts, offsets, sizes, times; they are not empty."""
    return (ShortIndex.of if len(columns[0]) <= _SHORT_MAX else WideIndex)(segment, *columns)


def _columns(entry: SegmentIndex, start: int = 0, stop: int | None = None) -> list[Sequence[int]]:
    return [column[start:stop] for column in (entry.firsts, entry.offsets, entry.sizes, entry.times_ms)]


def add_frame(entries: list[SegmentIndex], first_seq: int, location: int, size: int, time_ms: int) -> bool:
    """Add a frame after all others; return True if it is the first of its segment."""
    entry = entries[-1] if entries else None
    if entry is None or entry.segment != location >> 32:
        entries.append(ShortIndex.of(location >> 32, (first_seq,), (location & 0xFFFFFFFF,), (size,), (time_ms,)))
        return True
    if isinstance(entry, WideIndex):
        entry.firsts.append(first_seq)
        entry.offsets.append(location & 0xFFFFFFFF)
        entry.sizes.append(size)
        entry.times_ms.append(time_ms)
        return False
    columns = zip(_columns(entry), (first_seq, location & 0xFFFFFFFF, size, time_ms), strict=True)
    entries[-1] = make_index(entry.segment, [[*column, value] for column, value in columns])
    return False


def replace_frames(
    entries: list[SegmentIndex], lo: int, hi: int, frame: FramePlace, *, rest: FramePlace | None = None
) -> None:
    """Replace all frames whose first seq lies in ``[lo, hi)``, or none, by one, and by the rest of the last of them."""
    at = cut(entries, lo, hi)
    later = entries[at:]
    del entries[at:]
    add_frame(entries, *frame)
    if rest is not None:
        add_frame(entries, *rest)
    entries += later


def cut(entries: list[SegmentIndex], lo: int, hi: int) -> int:
    """Remove the frames that start in ``[lo, hi)``; return the place of the first segment wholly after them."""
    at = 0
    while at < len(entries) and entries[at].firsts[0] < hi:
        entry = entries[at]
        firsts = entry.firsts
        start, stop = bisect_left(firsts, lo), bisect_left(firsts, hi)
        if isinstance(entry, WideIndex) and start == 0 and len(firsts) - stop > _SHORT_MAX:
            entry.cut_front(stop)  # as trimming does, step by step
        elif stop > start or stop < len(firsts):
            kept = [_columns(entry, 0, start), _columns(entry, stop)]
            entries[at : at + 1] = [make_index(entry.segment, columns) for columns in kept if columns[0]]
        at += start > 0
        if stop < len(firsts):
            break
    return at


def find(entries: list[SegmentIndex], seq: int) -> tuple[int, int]:
    """Return the (segment, frame) indices that answer for ``seq``; the caller knows that it is alive.

    Records that were put one by one have one frame each, so the distance from the first of them is the place of a seq;
    it is never beyond that.
    """
    at = 0 if len(entries) == 1 else _segment_of(entries, seq)
    firsts = entries[at].firsts
    index = seq - firsts[0]
    if 0 <= index < len(firsts) and firsts[index] == seq:
        return at, index
    return at, bisect_right(firsts, seq) - 1


def _segment_of(entries: list[SegmentIndex], seq: int) -> int:
    at = len(entries) - 1
    while at > 0 and entries[at].firsts[0] > seq:  # few segments, and what is asked for is mostly at either end
        at -= 1
        if at > 8:
            at = max(bisect_right(entries, seq, hi=at + 1, key=lambda entry: entry.firsts[0]) - 1, 0)
    return at


def places(entries: list[SegmentIndex], lo: int, hi: int) -> Iterator[FramePlace]:
    """Yield the frames that answer for seqs in ``[lo, hi)``, ascending."""
    if not entries or lo >= hi:
        return
    at, index = find(entries, lo)
    index = max(index, 0)
    while at < len(entries):
        entry = entries[at]
        firsts = entry.firsts
        while index < len(firsts):
            if firsts[index] >= hi:
                return
            yield entry.place(index)
            index += 1
        at, index = at + 1, 0
