"""A simulated file, and what a power loss leaves of unsynced writes and names: the model of `SimDisk.crash`."""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

__all__ = ["MODES", "CrashMode", "Inode", "NameChange", "apply_names", "surviving_names"]

#: ``lost``: nothing unsynced survives. ``torn``: a prefix of each file's unsynced writes, the last one cut at any byte.
#: ``reordered``: any subset of the unsynced sectors and names. ``kept``: everything survives. ``any``: the seed picks.
CrashMode = Literal["lost", "torn", "reordered", "kept", "any"]

MODES: tuple[CrashMode, ...] = ("lost", "torn", "reordered", "kept")


class Inode:
    """One file: the content that readers see, the durable content, and the changes between the two in order."""

    __slots__ = ("data", "durable", "durable_size", "pending", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self.durable = bytearray()
        self.durable_size = 0
        #: (offset, bytes) for a write, (size, None) for a change of size.
        self.pending: list[tuple[int, bytes | None]] = []

    def copy(self) -> Inode:
        other = Inode()
        other.data, other.size = bytearray(self.data), self.size
        other.durable, other.durable_size = bytearray(self.durable), self.durable_size
        other.pending = list(self.pending)
        return other

    def change(self, at: int, data: bytes | None) -> None:
        self.size = _apply(self.data, self.size, at, data)
        self.pending.append((at, data))

    def sync(self) -> None:
        for at, data in self.pending:
            self.durable_size = _apply(self.durable, self.durable_size, at, data)
        self.pending.clear()

    def after_loss(self, mode: CrashMode, random: Random, *, sector_bytes: int) -> Inode:
        """Return the file as a power loss may leave it."""
        other = Inode()
        other.durable, other.durable_size = bytearray(self.durable), self.durable_size
        for at, data in _survivors(self.pending, mode, random, sector_bytes=sector_bytes):
            other.durable_size = _apply(other.durable, other.durable_size, at, data)
        other.data, other.size = bytearray(other.durable), other.durable_size
        return other


class NameChange(NamedTuple):
    """One change of a directory: names and their files, None for a name that is removed or, with a slash, a directory.

    A departure is that of a file which moved to another directory: before both are synced, a power loss may leave both
    names, and never none.
    """

    names: list[tuple[str, Inode | None]]
    is_departure: bool = False


def apply_names(names: dict[str, Inode | None], change: NameChange) -> None:
    """Apply one change to the names of a directory."""
    for name, inode in change.names:
        if inode is not None or name.endswith("/"):
            names[name] = inode
        else:
            names.pop(name, None)


def surviving_names(changes: list[NameChange], mode: CrashMode, random: Random) -> list[NameChange]:
    """Return the unsynced changes of a directory that survive a power loss."""
    if mode != "kept":
        changes = [change for change in changes if not change.is_departure]
    match mode:
        case "lost":
            return []
        case "torn":
            return changes[: random.randint(0, len(changes))]
        case "reordered":
            return [change for change in changes if random.random() < 0.5]
        case _:
            return changes


def _apply(content: bytearray, size: int, at: int, data: bytes | None) -> int:
    """Apply one change to a content, and return its new size. Zeros at the end are not stored."""
    if data is None:
        del content[at:]
        return at
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data
    return max(size, at + len(data))


def _survivors(
    pending: list[tuple[int, bytes | None]], mode: CrashMode, random: Random, *, sector_bytes: int
) -> list[tuple[int, bytes | None]]:
    """Return the unsynced changes of one file that survive a power loss."""
    match mode:
        case "lost":
            return []
        case "torn":
            kept = pending[: random.randint(0, len(pending))]
            if kept and (data := kept[-1][1]):
                kept[-1] = (kept[-1][0], data[: random.randint(0, len(data))])
            return kept
        case "reordered":
            return [piece for piece in _sectors(pending, sector_bytes) if random.random() < 0.6]
        case _:
            return pending


def _sectors(pending: list[tuple[int, bytes | None]], sector_bytes: int) -> list[tuple[int, bytes | None]]:
    """Split writes where a disk may tear them: at the borders of sectors."""
    pieces: list[tuple[int, bytes | None]] = []
    for at, data in pending:
        if data is None:
            pieces.append((at, None))
            continue
        done = 0
        while done < len(data):
            count = min(sector_bytes - (at + done) % sector_bytes, len(data) - done)
            pieces.append((at + done, data[done : done + count]))
            done += count
    return pieces
