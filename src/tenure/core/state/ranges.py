"""Sets of seqs written as runs: a flat list ``[lo, n, lo, n, ...]``, ascending, neither touching nor overlapping.

A claim of 1,000 contiguous jobs is then two numbers in an event, on disk and in memory, and an ack of them is two
numbers again. The functions here turn seqs into runs and back and find the borders of runs in a roaring bitmap;
each costs what it touches: the seqs given or the runs found, never the size of the bitmap.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from pyroaring import BitMap64

__all__ = ["count", "each", "first_absent", "gaps_of", "runs_of", "to_runs"]

_U64_MAX = 2**64 - 1
_COUNTING_BYTES = bytes(range(256))
_LOW_BYTE = 0 if sys.byteorder == "little" else 7


def to_runs(seqs: Iterable[int]) -> list[int]:
    """Return the runs that cover exactly these seqs, in any order, with or without repeats.

    Contiguous seqs are what a worker that acks its whole claim sends, so they are recognised in C.
    """
    ordered = sorted(seqs)
    n = len(ordered)
    if n == 0:
        return []
    if n == 1 or _is_contiguous(ordered):
        return [ordered[0], n]
    return _runs_of_ordered(ordered)


def count(runs: Sequence[int]) -> int:
    """Return how many seqs the runs cover."""
    return sum(runs[1::2])


def each(runs: Sequence[int]) -> Iterator[int]:
    """Return every seq that the runs cover, in the order of the runs."""
    if len(runs) == 2:
        return iter(range(runs[0], runs[0] + runs[1]))
    return chain.from_iterable(range(lo, lo + n) for lo, n in zip(runs[::2], runs[1::2], strict=True))


def first_absent(bitmap: BitMap64, start: int) -> int:
    """Return the first integer at or above ``start`` that is not in the bitmap (values below 2**63).

    It gallops: the window doubles while it is full, then halves onto the border, so a run of a million seqs
    takes some thirty calls into C.
    """
    if start not in bitmap:
        return start
    seq, width = start + 1, 1
    while bitmap.contains_range(seq, seq + width):
        seq += width
        width *= 2
    # The border lies in [seq, seq + width), and width is a power of two.
    while width > 1:
        width //= 2
        if bitmap.contains_range(seq, seq + width):
            seq += width
    return seq


def runs_of(bitmap: BitMap64, lo: int, hi: int) -> list[int]:
    """Return the runs of the bitmap's members within ``[lo, hi)``."""
    runs: list[int] = []
    seq = _first_present(bitmap, lo, hi)
    while seq < hi:
        end = min(first_absent(bitmap, seq), hi)
        runs += (seq, end - seq)
        seq = _first_present(bitmap, end, hi)
    return runs


def gaps_of(bitmap: BitMap64, lo: int, hi: int) -> list[int]:
    """Return the runs within ``[lo, hi)`` that the bitmap leaves out: what lives, where it marks the dead."""
    runs: list[int] = []
    seq = first_absent(bitmap, lo)
    while seq < hi:
        end = _first_present(bitmap, seq, hi)
        runs += (seq, end - seq)
        seq = first_absent(bitmap, end)
    return runs


def _first_present(bitmap: BitMap64, start: int, stop: int) -> int:
    """Return the first member in ``[start, stop)``, or ``stop``."""
    if start >= stop:
        return stop
    found = next(bitmap.iter_equal_or_larger(start), stop)
    return found if found < stop else stop


def _is_contiguous(ordered: list[int]) -> bool:
    """Return whether a sorted, non-empty list is ``first, first + 1, ...``, without a Python step per element.

    The last byte of each element must count up by one. Then no step is 0, every step of a sorted list is at least
    1, and as the steps add up to len - 1 each of them is exactly 1. This takes half the time of building the
    expected list and comparing.
    """
    first, last, n = ordered[0], ordered[-1], len(ordered)
    if last - first != n - 1 or first < 0 or last > _U64_MAX:
        return False
    expected = (_COUNTING_BYTES * (n // 256 + 2))[first & 255 : (first & 255) + n]
    return array("Q", ordered).tobytes()[_LOW_BYTE::8] == expected


def _runs_of_ordered(ordered: list[int]) -> list[int]:
    """Return the runs of a sorted, non-empty list."""
    runs: list[int] = []
    lo = following = ordered[0]
    for seq in ordered:
        if seq == following:
            following += 1
        elif seq > following:
            runs += (lo, following - lo)
            lo, following = seq, seq + 1
    runs += (lo, following - lo)
    return runs
