"""A time for each of some seqs, in 16 bytes each: a dict of a million integers takes seven times as much.

They lie sorted by seq in chunks of a few hundred, each a pair of arrays, so that no step touches more than two chunks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

__all__ = ["SeqTimes"]

_CHUNK_SEQS_MAX: Final = 512


class SeqTimes:
    """Times by seq; the caller puts no seq twice, and asks only for those that are there."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[tuple[array[int], array[int]]] = []
        self._lasts: list[int] = []  # the last seq of each chunk

    def put(self, seq: int, time: int) -> None:
        """Note the time of a seq."""
        if not self._chunks:
            self._chunks.append((array("Q"), array("Q")))
            self._lasts.append(seq)
        at = min(bisect_left(self._lasts, seq), len(self._lasts) - 1)
        seqs, times = self._chunks[at]
        place = bisect_left(seqs, seq)
        seqs.insert(place, seq)
        times.insert(place, time)
        self._lasts[at] = seqs[-1]
        if len(seqs) > _CHUNK_SEQS_MAX:
            self._split(at, keep=len(seqs) - 1 if place == len(seqs) - 1 else len(seqs) // 2)

    def _split(self, at: int, *, keep: int) -> None:
        """Move the end of a chunk to one of its own. One that grew at its end is left full: seqs mostly rise."""
        seqs, times = self._chunks[at]
        self._chunks.insert(at + 1, (seqs[keep:], times[keep:]))
        self._lasts.insert(at + 1, seqs[-1])
        del seqs[keep:], times[keep:]
        self._lasts[at] = seqs[-1]

    def get(self, seq: int) -> int:
        """Return the time of a seq."""
        seqs, times = self._chunks[bisect_left(self._lasts, seq)]
        return times[bisect_left(seqs, seq)]

    def pop(self, seq: int) -> int:
        """Forget a seq; return its time."""
        at = bisect_left(self._lasts, seq)
        seqs, times = self._chunks[at]
        place = bisect_left(seqs, seq)
        time = times.pop(place)
        del seqs[place]
        if seqs:
            self._lasts[at] = seqs[-1]
        else:
            del self._chunks[at], self._lasts[at]
        return time
