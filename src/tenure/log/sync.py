"""Syncs that may run on another thread while the owner goes on writing, rolls and drops.

The kernel reports a failed write-back once per open file: of two fdatasyncs that overlap, one fails and the other
succeeds. So syncs take turns, and each fails if one before it has failed.

Everything that waits for the disk is done here. A roll goes on in an unpublished segment at once; the next sync makes
the old segment and the new one durable, in this order, and only then gives the new one its name. A dropped segment is
removed once the frame that declares it is durable. Each step is done once, whichever sync comes first.

Where the log has a home elsewhere, a sync also carries there what it made durable here. A segment is published and a
dropped one removed only after that: to the rest of the world, durable means what the home has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from tenure.errors import TenureError
from tenure.log.disk import Disk, File
from tenure.log.segment import SEGMENTS, segment_name
from tenure.log.spare_segments import unpublished_name

__all__ = ["FileSync", "Goal", "Removal", "Roll", "Syncs"]


class Roll:
    """A step from one segment to the next that has yet to become durable."""

    __slots__ = ("is_done", "number", "old", "old_end")

    def __init__(self, number: int, old: File, *, old_end: int) -> None:
        #: The segment that was begun; the old one is the one before it.
        self.number = number
        self.old = old
        self.old_end = old_end
        self.is_done = False

    def sync_old(self, disk: Disk) -> None:
        """Make the segment before durable up to its end, and free the room after it."""
        disk.sync(self.old)
        with suppress(OSError):  # Only room is lost: the head of the next segment says where this one ends.
            disk.truncate(self.old, self.old_end)


class Removal:
    """A segment that was declared dropped in what is written: it goes once that is durable, and frees what it used."""

    __slots__ = ("batch", "is_done", "segment", "used_bytes")

    def __init__(self, segment: int, *, batch: int, used_bytes: int) -> None:
        self.segment = segment
        #: The batch that declares it.
        self.batch = batch
        self.used_bytes = used_bytes
        self.is_done = False


class Goal(NamedTuple):
    """How far a sync goes: the last batch, its segment, and what carries it to the log's home where there is one."""

    batch: int
    segment: int
    carry: Callable[[], None] | None = None


class FileSync:
    """One sync: what it makes durable, and how it went."""

    __slots__ = ("_file", "_syncs", "error", "goal", "removals", "rolls", "segment")

    def __init__(
        self,
        syncs: Syncs,
        file: File | None,
        *,
        segment: int,
        goal: Goal,
        rolls: Sequence[Roll],
        removals: Sequence[Removal],
    ) -> None:
        self._syncs = syncs
        self._file = file
        self.segment = segment
        self.goal = goal
        self.rolls = rolls
        self.removals = removals
        self.error: OSError | TenureError | None = None

    @property
    def is_instant(self) -> bool:
        return self._syncs.disk.is_memory and not self.rolls and not self.removals and self.goal.carry is None

    def run(self) -> None:
        if self._file is None:
            return
        with self._syncs.lock:
            self.error = self._syncs.first_error()
            if self.error is None:
                try:
                    self._sync(self._file)
                    if self.removals:
                        self._remove()
                except (OSError, TenureError) as error:
                    self.error = error

    def _sync(self, file: File) -> None:
        """Sync in the order of the log; a segment is published once it and all before it are durable."""
        disk, carry = self._syncs.disk, self.goal.carry
        rolls = [roll for roll in self.rolls if not roll.is_done] if self.rolls else ()
        for roll in rolls:
            roll.sync_old(disk)
        disk.sync(file)
        if carry is not None:
            carry()
        for roll in rolls:  # one by one: no name may survive a power loss that the one before it does not
            if roll.number > self.goal.segment:
                break
            disk.rename(unpublished_name(roll.number), segment_name(roll.number))
            disk.sync_dir(SEGMENTS)
            roll.is_done = True

    def _remove(self) -> None:
        disk, removals = self._syncs.disk, [removal for removal in self.removals if not removal.is_done]
        for removal in removals:
            disk.unlink(segment_name(removal.segment))
            removal.is_done = True
        if removals:
            disk.sync_dir(SEGMENTS)


class Syncs:
    """The syncs that are under way: one runs at a time, and each is kept until the owner ends it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.lock = Lock()
        self._under_way: list[FileSync] = []

    def begin(
        self,
        file: File | None,
        *,
        segment: int,
        goal: Goal,
        rolls: Sequence[Roll],
        removals: Sequence[Removal],
    ) -> FileSync:
        sync = FileSync(self, file, segment=segment, goal=goal, rolls=rolls, removals=removals)
        self._under_way.append(sync)
        return sync

    def first_error(self) -> OSError | TenureError | None:
        """Return the error of a sync under way, or None: after one, no later sync may succeed or publish anything."""
        for sync in self._under_way:
            if sync.error is not None:
                return sync.error
        return None

    def end(self, sync: FileSync) -> None:
        """End a sync; raises ValueError where it is not under way."""
        self._under_way.remove(sync)
