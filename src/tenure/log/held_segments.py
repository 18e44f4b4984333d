"""Segments held open by a second reader of a log in use, so that a drop meanwhile takes nothing from it.

A file that was unlinked can be read as long as it is open. Segments are dropped oldest first, so holding the oldest few
is enough: the others are still there when they are opened.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.log.disk import Disk, File
from tenure.log.features import FEATURES, Feature
from tenure.log.interface import Position
from tenure.log.recovery import Scan, locate
from tenure.log.segment import Head, find_features, list_heads, read_head, segment_name

__all__ = ["HeldSegments"]

_HELD_MAX = 64
_LOOKS_MAX = 5


class HeldSegments:
    """The segments of a log from one that a replay starts in; a `Files` for a scan. Close it in the end."""

    def __init__(self, disk: Disk, *, known: Sequence[Feature] = FEATURES) -> None:
        self._disk = disk
        self._known = known
        self._held: dict[str, File] = {}
        self._heads: list[Head] = []

    def goes_through(self, position: Position) -> bool:
        """Return whether the log went through a position. Raises OSError, Corrupt."""
        try:
            locate(self._disk, self._look(), position)
        except (ValueError, FileNotFoundError):
            return False
        return True

    def hold(self, after: Position | None) -> None:
        """Hold the segments from that of ``after`` on, or all, as they are now. Raises OSError, Corrupt."""
        for look in range(_LOOKS_MAX):
            self.close()
            heads = self._look()
            self._heads = [head for head in heads if after is None or head.number >= after.segment]
            try:
                for head in self._heads[:_HELD_MAX]:
                    name = segment_name(head.number)
                    self._held[name] = self._disk.open(name)
                return
            except FileNotFoundError:  # dropped between two calls: look again
                if look == _LOOKS_MAX - 1:
                    raise

    def scan(self, after: Position | None, stop: Position) -> Scan:
        """Return a scan from ``after`` to ``stop``, which is durable. Raises UnknownPosition, OSError, Corrupt."""
        heads = [head for head in self._heads if head.number <= stop.segment]
        while heads[-1].number < stop.segment:
            heads.append(read_head(self._disk, heads[-1].number + 1)[0])
        find_features(self, [(segment_name(head.number), head) for head in heads], known=self._known)
        return Scan(self, heads, after=after, stop=stop)

    def _look(self) -> list[Head]:
        for _ in range(_LOOKS_MAX):
            try:
                return list_heads(self._disk, known=self._known)
            except FileNotFoundError:
                continue
        return list_heads(self._disk, known=self._known)

    # What a scan needs of a disk

    def open(self, name: str) -> File:
        held = self._held.get(name)
        return self._disk.open(name) if held is None else held

    def close(self, file: File | None = None) -> None:
        """Close a file that a scan opened and that is not held; without one, close those that are held."""
        if file is None:
            while self._held:
                self._disk.close(self._held.popitem()[1])
        elif file not in self._held.values():
            self._disk.close(file)

    def size(self, file: File) -> int:
        return self._disk.size(file)

    def pread(self, file: File, count: int, offset: int) -> bytes:
        return self._disk.pread(file, count, offset)
