"""Entries in the order in which they come due: the first is at hand, and any other can be taken out.

A heap cannot lose an entry from its middle, so entries of jobs that are gone pile up in it until it is built again,
which takes as long as it is large. Here the entries lie sorted in chunks of a few hundred, and no step touches more
than two chunks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from typing import Final

__all__ = ["DueOrder"]

_CHUNK_ENTRIES_MAX: Final = 512


class DueOrder:
    """A sorted set of integers; the caller adds none twice, and removes only what is there."""

    __slots__ = ("_chunks", "_count", "_lasts")

    def __init__(self, ordered: list[int] | None = None) -> None:
        ordered = ordered or []
        step = _CHUNK_ENTRIES_MAX // 2
        self._chunks = [ordered[at : at + step] for at in range(0, len(ordered), step)]
        self._lasts = [chunk[-1] for chunk in self._chunks]  # the last entry of each chunk
        self._count = len(ordered)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Return the entries, ascending."""
        return chain.from_iterable(self._chunks)

    @property
    def first(self) -> int:
        """Return the lowest entry; there is one."""
        return self._chunks[0][0]

    def add(self, entry: int) -> None:
        """Add an entry."""
        self._count += 1
        if not self._chunks:
            self._chunks.append([entry])
            self._lasts.append(entry)
            return
        at = min(bisect_left(self._lasts, entry), len(self._lasts) - 1)
        chunk = self._chunks[at]
        insort(chunk, entry)
        if len(chunk) > _CHUNK_ENTRIES_MAX:
            half = len(chunk) // 2
            self._chunks.insert(at + 1, chunk[half:])
            self._lasts.insert(at + 1, chunk[-1])
            del chunk[half:]
        self._lasts[at] = chunk[-1]

    def remove(self, entry: int) -> None:
        """Take an entry out."""
        at = bisect_left(self._lasts, entry)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, entry)]
        self._count -= 1
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]
