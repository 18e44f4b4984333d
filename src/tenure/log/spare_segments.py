"""Spare segments, allocated ahead: room that a full disk cannot take away, and rolls that do not wait for the disk.

A spare is a file of a segment's size that nothing has been written to. It already has the number of the segment it will
become, under a name that no reader looks at; a segment gets its final name once everything before it is synced.

Another thread may allocate spares while the owner of the log takes them: one adds at a time, and only the owner takes.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from tenure.log.disk import Disk, File
from tenure.log.segment import SEGMENTS

__all__ = ["Spare", "Spares", "spare_size", "unpublished_name"]

#: How many sixteenths of the free bytes a small spare takes: others write to this disk too.
_SMALL_SHARE = 15


def unpublished_name(number: int) -> str:
    """Return the name of a segment that is spare or in use, and not yet known to follow only durable ones."""
    return f"{SEGMENTS}/{number:010d}.new"


def spare_size(free_bytes: int) -> int:
    """Return the size of the spare that is made of so many free bytes where the disk has no more."""
    return free_bytes * _SMALL_SHARE // 16


class Spare(NamedTuple):
    """One file allocated ahead."""

    number: int
    file: File
    size: int


class Spares:
    """The row of files for the segments to come, numbered without a gap; each of ``size`` bytes, or of what there is.

    A segment that is dropped gives back the bytes it used, and these may be a few less than a new one asks for. So on a
    full disk a spare may be smaller, down to a quarter.
    """

    def __init__(self, disk: Disk, *, size: int) -> None:
        self._disk = disk
        self._size = size
        self._row: deque[Spare] = deque()
        self._adding = Lock()
        self._taken = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._row)

    def sizes(self) -> list[int]:
        """Return the bytes of each spare, in the order in which they are taken."""
        return [spare.size for spare in self._row.copy()]

    def is_ready(self, count: int, *, least: int) -> bool:
        """Return whether there are ``count`` spares, each of at least ``least`` bytes."""
        sizes = self.sizes()
        return len(sizes) >= count and min(sizes) >= least

    def fill(self, count: int, *, least: int, after: int) -> None:
        """Allocate spares up to ``count``, each of at least ``least`` bytes, for the segments that follow ``after``.

        Raises OSError; no spare is lost then.
        """
        with self._adding:
            for index, spare in enumerate(self._row):
                self._row[index] = self._grow(spare, least)
            self._extend(count, size=max(self._size, least), after=after)

    def prepare(self, count: int, *, size: int, after: int) -> None:
        """Allocate spares up to ``count`` from another thread, those that are missing only. Raises OSError."""
        with self._adding:
            if not self._is_closed:
                self._extend(count, size=max(self._size, size), after=after)

    def _extend(self, count: int, *, size: int, after: int) -> None:
        while len(self._row) < count:
            self._add(size, after=after)

    def add_small(self, *, after: int) -> bool:
        """Add a spare of what room there is; False where that is too little to be of use."""
        size = min(self._size, spare_size(self._disk.free_bytes()))
        if size < self._size // 4:
            return False
        with suppress(OSError), self._adding:
            self._add(size, after=after)
            return True
        return False

    def _add(self, size: int, *, after: int) -> None:
        number = max([after, self._taken, *(spare.number for spare in self._row.copy())]) + 1
        file = self._disk.create(unpublished_name(number))
        try:
            self._disk.allocate(file, size)
        except BaseException:
            self._disk.close(file)
            with suppress(OSError):
                self._disk.unlink(unpublished_name(number))
            raise
        self._row.append(Spare(number, file, size))

    def take(self, size: int) -> Spare:
        """Hand out the next spare, grown to ``size`` where that is more than it has. Raises OSError and keeps it."""
        spare = self._grow(self._row[0], size)
        self._row.popleft()
        self._taken = spare.number
        return spare

    def _grow(self, spare: Spare, size: int) -> Spare:
        if size > spare.size:
            self._disk.allocate(spare.file, size)
            spare = spare._replace(size=size)
        return spare

    def shrink(self, count: int) -> None:
        """Free the space of all but ``count`` spares."""
        self._let_go(count, unlink=True)

    def close(self, *, unlink: bool) -> None:
        """Let go of the files, and of their space if ``unlink``."""
        self._let_go(0, unlink=unlink)
        self._is_closed = True

    def _let_go(self, count: int, *, unlink: bool) -> None:
        with self._adding:
            while len(self._row) > count:
                spare = self._row.pop()
                self._disk.close(spare.file)
                if unlink:
                    with suppress(OSError):
                        self._disk.unlink(unpublished_name(spare.number))
