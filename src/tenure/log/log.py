"""The log on a disk: what :class:`~tenure.log.interface.Log` promises, in segment files.

Writing is in :mod:`~tenure.log.writer`, what a restart does in :mod:`~tenure.log.recovery` and
:mod:`~tenure.log.opening`; here they become one log with a beginning and an end.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tenure.errors import Invalid, Overloaded
from tenure.log.disk import Disk
from tenure.log.features import FEATURES, NO_FEATURES, Feature, FeatureSet
from tenure.log.frame import KIND_DROPPED, KIND_EPOCH
from tenure.log.interface import Frame, Position, SegmentInfo, UnknownPosition
from tenure.log.opening import (
    check_declared,
    check_no_home,
    clear_leftovers,
    load_or_create,
    opening_error,
    peek_features,
    repair,
)
from tenure.log.reader import FrameReader
from tenure.log.recovery import RecoveryReport, Scan, locate
from tenure.log.segment import HEAD_BYTES, Head, segment_name
from tenure.log.sync import Removal
from tenure.log.unpublished import clear_spares
from tenure.log.writer import OFFSET_MAX, SegmentWriter

__all__ = ["SEGMENT_BYTES", "FileLog"]

SEGMENT_BYTES = 64 << 20
HANDLES_MAX = 64


class FileLog(SegmentWriter):
    """A :class:`~tenure.log.interface.Log` in segment files on a :class:`~tenure.log.disk.Disk`.

    >>> from tenure.log import FileLog
    >>> from tenure.testing import SimDisk
    >>> disk = SimDisk()
    >>> log = FileLog.open(disk)
    >>> list(log.replay())
    []
    >>> locations = log.append([(16, 7, b"body")])
    >>> batch = log.write()
    >>> batch == log.sync()
    True
    >>> log.close()
    >>> [bytes(body) for kind, topic, location, body in FileLog.open(disk).replay()]
    [b'body']
    """

    def __init__(
        self,
        disk: Disk,
        heads: list[Head],
        *,
        segment_bytes: int,
        handles_max: int,
        features: FeatureSet = NO_FEATURES,
    ) -> None:
        super().__init__(disk, heads, segment_bytes=segment_bytes, handles_max=handles_max, features=features)
        #: What the recovery found; None until the first replay is exhausted.
        self.report: RecoveryReport | None = None
        self._reader = FrameReader(disk, self._files)

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        handles_max: int = HANDLES_MAX,
        log_id: bytes | None = None,
        epoch: int = 0,
        known: Sequence[Feature] = FEATURES,
    ) -> FileLog:
        """Lock and open the directory; :meth:`replay` must be exhausted before the first append.

        ``log_id`` and ``epoch`` are for a new directory only: 16 bytes that identify the log, and the epoch it
        continues. ``known`` are the features of this version: a new directory uses them all. Raises Conflict where
        another process holds the directory, Corrupt, Overloaded on a full disk, Closed where it cannot be written.
        """
        if not 1024 <= segment_bytes <= OFFSET_MAX:
            raise Invalid("segment_bytes must lie in 1024..4294967295")
        try:
            peek_features(disk, known=known)  # before the lock, which makes a file
            disk.lock()
            try:
                check_no_home(disk)
                new_id = secrets.token_bytes(16) if log_id is None else log_id
                heads, features = load_or_create(
                    disk, segment_bytes=segment_bytes, log_id=new_id, epoch=epoch, known=known
                )
            except BaseException:
                disk.unlock()
                raise
        except OSError as error:
            raise opening_error("opening the log", error) from error
        return cls(disk, heads, segment_bytes=segment_bytes, handles_max=handles_max, features=features)

    @property
    def disk(self) -> Disk:
        """The disk that the segments are on."""
        return self._disk

    def read(self, location: int) -> tuple[int, int, bytes]:
        entry = self._pending.get(location)
        return entry if entry is not None else self._reader.read(location, self._salts.get(location >> 32))

    def check(self, location: int) -> tuple[int, int]:
        entry = self._pending.get(location)
        if entry is not None:
            return entry[0], len(entry[2])
        return self._reader.check(location, self._salts.get(location >> 32))

    def read_part(self, location: int, start: int, count: int) -> bytes:
        entry = self._pending.get(location)
        if entry is not None:
            return entry[2][start : start + count]
        return self._reader.read_part(location, start, count, is_there=location >> 32 in self._salts)

    def contains(self, position: Position) -> bool:
        self._publish()
        try:
            locate(self._disk, self._heads, position)
        except UnknownPosition:
            return False
        return True

    def replay(self, after: Position | None = None) -> Iterator[Frame]:
        if self._closed or (self.failed is not None and self._file == -1):
            raise self._refusal()
        if self._file != -1:
            self._publish()
            return Scan(self._disk, list(self._heads), after=after, stop=self.position()).frames()
        return self._recover(Scan(self._disk, self._heads, after=after))

    def position(self) -> Position:
        batch = self.written_batch + 1
        number = self._heads[-1].number
        return Position(number, self._written_end, batch, self._last_offset, self._last_crc, self._dropped)

    def segments(self, limit: int | None = None) -> list[SegmentInfo]:
        heads = self._heads if limit is None else self._heads[: limit + 1]
        ends = [head.previous_end for head in heads[1:]] + [self._written_end]
        found = [SegmentInfo(head.number, end, head.first_batch) for head, end in zip(heads, ends, strict=True)]
        return found[:limit]

    @property
    def used_bytes(self) -> int:
        return self._closed_bytes + self._written_end

    def drop(self, segment: int) -> int:
        self._check_ready()
        if len(self._heads) == 1 or segment != self._heads[0].number:
            raise Invalid(f"segment {segment} cannot be dropped: only the oldest can, and never the one being written")
        self._append_own(KIND_DROPPED, segment.to_bytes(8, "little"))
        batch = self.write()
        self._removals.append(Removal(segment, batch=batch, used_bytes=self._heads[1].previous_end))
        self._room.reclaimed_bytes = 0
        self._dropped = segment
        self._closed_bytes -= self._heads[1].previous_end
        del self._heads[0], self._salts[segment]
        self._files.forget(segment)
        self._reader.drop(segment)
        self._room.measure(self._heads, capacity=self._capacity)
        return batch

    def checkpointed(self, position: Position) -> None:
        pass

    def release_soon(self, hand_to: str) -> None:
        pass

    def release(self, hand_to: str = "") -> None:
        pass

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._file != -1 and self.failed is None:
                with suppress(Overloaded):  # No room for a seal: what was synced is durable all the same.
                    self.seal()
        finally:
            self._closed, self._limit = True, -1
            with self._syncs.lock:
                self._files.close()
                # On a full disk the spares stay, or another program might take their room before the next opening.
                self._spares.close(unlink=not self.crowded and self.failed is None)
            self._disk.unlock()

    # How it is done.

    def _publish(self) -> None:
        """Give every segment its name, so that the log can be read by name."""
        if self._rolls and self.failed is None and not self._closed:
            self.sync()

    def _begin_epoch(self, scan: Scan) -> tuple[int, int]:
        """Return the number of this opening, and the last batch that is durable: all that was found."""
        return scan.epoch + 1, scan.end.batch - 1

    def _recover(self, scan: Scan) -> Iterator[Frame]:
        """Replay, then make the log ready: repair the tail, log this opening's epoch, clear what was dropped."""
        yield from scan.frames()
        end = scan.end
        check_declared(self._heads, end.dropped)
        try:
            file, capacity = repair(self._disk, scan, segment_bytes=self._room.segment_bytes)
        except OSError as error:
            raise opening_error("repairing the end of the log", error) from error
        self.pending_batch = end.batch
        self.written_batch = end.batch - 1
        self.epoch, self.synced_batch = self._begin_epoch(scan)
        self._last_offset, self._last_crc, self._dropped = end.last_offset, end.last_crc, end.dropped
        self._use(self._heads[-1], file, end=end.offset, capacity=capacity)
        try:
            clear_spares(self._disk)
            if end.offset == HEAD_BYTES:
                # A new log, or a roll that was cut short before what the segment starts with became durable.
                for entry in self._first_entries(end.segment):
                    self._join(entry)
            self._append_own(KIND_EPOCH, b"")
            self.sync()
            unlinked = clear_leftovers(self._disk, end.dropped)
        except BaseException as error:
            self._file = self._limit = -1
            if isinstance(error, OSError):
                self._fail("clearing dropped segments", error)
            raise
        for number in unlinked:
            self._files.forget(number)
            self._salts.pop(number, None)
        self._heads = [head for head in self._heads if head.number > end.dropped]
        self._closed_bytes = sum(head.previous_end for head in self._heads[1:])
        self._room.measure(self._heads, capacity=self._capacity)
        if len(self._heads) > 1:
            self._refill(self._room.kept, least=self._room.reclaim_bytes)
        torn = max(0, scan.torn_end - end.offset)
        name = segment_name(end.segment) if torn else None
        self.report = RecoveryReport(self.epoch, scan.batches, name, end.offset, torn, unlinked)
