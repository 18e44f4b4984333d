"""Snapshots of topics in a file beside a checkpoint, on their way into the log.

The file is read once, by the process that asked for it, and never after a restart: the log is where they belong.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from tenure.log.checkpoint import CHECKPOINTS
from tenure.log.disk import Disk, write_whole

__all__ = ["BaseFile", "StoredBase", "write_bases"]


class StoredBase(NamedTuple):
    """One snapshot in the file: of which topic, where it ends, and its checksum."""

    topic: int
    end: int
    crc: int


def write_bases(disk: Disk, batch: int, bases: Iterable[tuple[int, bytes]]) -> list[StoredBase]:
    """Write snapshots, each with the id of its topic, for the checkpoint before a batch. Raises OSError."""
    disk.mkdir(CHECKPOINTS)
    stored: list[StoredBase] = []
    file, end = disk.create(_name(batch)), 0
    try:
        for topic, data in bases:
            write_whole(disk, file, data, offset=end)
            end += len(data)
            stored.append(StoredBase(topic, end, crc32c(data)))
    finally:
        disk.close(file)
    return stored


class BaseFile:
    """The file of a checkpoint's bases, open for reading; ``remove`` it in the end. Raises OSError."""

    def __init__(self, disk: Disk, batch: int) -> None:
        self._disk = disk
        self._name = _name(batch)
        self._file = disk.open(self._name)

    def read(self, start: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``start`` on."""
        return self._disk.pread(self._file, count, start)

    def remove(self) -> None:
        """Close and remove the file."""
        self._disk.close(self._file)
        with suppress(OSError):
            self._disk.unlink(self._name)


def _name(batch: int) -> str:
    return f"{CHECKPOINTS}/{batch:020d}.bases"
