"""Recovery: one pass over the log that checks, replays, and finds where the next batch goes.

The rule. A bad frame of batch B is corruption if a valid later frame carries ``synced_batch >= B``, or if a later
segment exists, since a roll syncs first. Otherwise nobody was ever told that B is durable: the log is torn from the
start of B, and whatever lies behind is not resurrected, however valid it looks (faults 5, 6, 7).

Scan and replay are the same pass, so nothing is verified twice: a frame is handed out as soon as its batch is complete.
Where damage is met further on, the pass ends with Corrupt, and the caller throws away what it has built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from tenure.log.disk import Disk, File
from tenure.log.frame import (
    CHUNK_BYTES,
    HEADER_BYTES,
    KIND_DROPPED,
    KIND_FIRST,
    LAST,
    checksum,
    find_frames,
    nonzero_end,
    unpack_header,
)
from tenure.log.home import Frame, Position, UnknownPosition
from tenure.log.reader import read_error
from tenure.log.segment import HEAD_BYTES, Head, damage, segment_name

__all__ = ["RecoveryReport", "Scan", "locate"]

_MARKS_MAX = 64


class RecoveryReport(NamedTuple):
    """What a recovery found and did; the torn bytes are reported once, because they are gone afterwards."""

    epoch: int
    batches: int
    torn_file: str | None
    torn_offset: int
    torn_bytes: int
    unlinked: tuple[int, ...]


class Start(NamedTuple):
    """Where a scan begins, with what the frame before it said."""

    place: int
    position: Position
    epoch: int
    witnessed: int


def locate(disk: Disk, heads: Sequence[Head], position: Position | None) -> Start:
    """Find a position in the chain. Raises UnknownPosition where the log did not go through it.

    A position that lies beyond the end of the log points at zeros, like one at the end: only the frame before it tells.
    """
    if position is None:
        head = heads[0]
        start = Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc)
        return Start(0, start, head.epoch, head.first_batch - 1)
    index = position.segment - heads[0].number
    if not 0 <= index < len(heads):
        raise UnknownPosition(f"segment {position.segment} is not part of the log")
    head = heads[index]
    if position.last_offset == 0:
        if (position.offset, position.batch, position.last_crc) != (HEAD_BYTES, head.first_batch, head.crc):
            raise UnknownPosition(f"segment {position.segment} does not begin as the position says")
        return Start(index, position, head.epoch, head.first_batch - 1)
    return _frame_before(disk, head, position, place=index)


def _frame_before(disk: Disk, head: Head, position: Position, *, place: int) -> Start:
    count = position.offset - position.last_offset
    try:
        file = disk.open(segment_name(head.number))
        try:
            frame = disk.pread(file, max(0, count), position.last_offset)
        finally:
            disk.close(file)
    except OSError as error:
        raise read_error(error, head.number, position.last_offset) from error
    if len(frame) == count >= HEADER_BYTES:
        length, crc, epoch, batch, synced, _, flags, _, _ = unpack_header(frame)
        same = (length, crc, batch) == (count, position.last_crc, position.batch - 1)
        if same and flags & LAST and checksum(frame, head.salt) == crc:
            return Start(place, position, epoch, synced)
    name = segment_name(head.number)
    raise UnknownPosition(f"no batch {position.batch - 1} ends at offset {position.offset} of {name}")


class Scan:
    """One pass over a chain of segments; when :meth:`frames` is exhausted, the fields say how the log ends.

    ``stop`` ends the pass there instead of at the end of the files, for a replay of a log that is in use.
    """

    def __init__(
        self, disk: Disk, heads: Sequence[Head], *, after: Position | None = None, stop: Position | None = None
    ) -> None:
        self._disk = disk
        self._heads = heads
        self._start = locate(disk, heads, after)
        self._stop = stop
        start = self._start.position
        self.segment, self.offset, self.batch, self.last_offset, self.last_crc, self.dropped = start
        self.epoch = self._start.epoch
        #: The highest batch that a frame says was synced.
        self.witnessed = self._start.witnessed
        #: Where in the last segment the bytes begin that no frame says were synced.
        self.unwitnessed_offset = self.offset
        #: Where the bytes end that are not zero, behind the last whole batch.
        self.torn_end = 0
        self._first_batch = self.batch
        self._bad_offset = 0
        self._marks: list[tuple[int, int]] = []

    @property
    def batches(self) -> int:
        return self.batch - self._first_batch

    def position(self) -> Position:
        return Position(self.segment, self.offset, self.batch, self.last_offset, self.last_crc, self.dropped)

    def frames(self) -> Iterator[Frame]:
        """Give the frames of whole batches in order. Raises Corrupt."""
        heads = self._heads
        for index in range(self._start.place, len(heads)):
            head = heads[index]
            if index > self._start.place:
                self._enter(head)
            after = heads[index + 1] if index + 1 < len(heads) else None
            file = self._disk.open(segment_name(head.number))
            try:
                yield from self._segment(head, file, limit=self._limit(file, after))
                if after is not None:
                    self._check_end(head, after, file)
                elif self._stop is None:
                    self._examine_tail(head, file)
                elif self.offset != self._stop.offset:
                    end = self._next_whole(head, file, limit=self._stop.offset)
                    name = segment_name(head.number)
                    raise damage(name, self._bad_offset, end=end, why="a bad frame", batch=self.batch)
            except OSError as error:
                raise read_error(error, head.number, self.offset) from error
            finally:
                self._disk.close(file)

    def _limit(self, file: File, after: Head | None) -> int:
        if after is not None:
            return after.previous_end
        return self._disk.size(file) if self._stop is None else self._stop.offset

    def _enter(self, head: Head) -> None:
        self.segment, self.offset, self.last_offset, self.last_crc = head.number, HEAD_BYTES, 0, head.crc
        self.witnessed = max(self.witnessed, head.first_batch - 1)
        self.epoch = max(self.epoch, head.epoch)
        self._marks.clear()

    def _segment(self, head: Head, file: File, *, limit: int) -> Iterator[Frame]:
        """Give the frames of one segment; the hot loop of recovery, about a microsecond for each small frame.

        ``self.offset`` ends behind the last whole batch; ``_bad_offset`` is where the first bad frame begins.
        """
        base, salt = head.number << 32, head.salt
        batch_next, epoch_min, witnessed = self.batch, self.epoch, self.witnessed
        last_offset, last_crc, batch_end = self.last_offset, self.last_crc, self.offset
        pread, unpack, crc_of = self._disk.pread, unpack_header, crc32c
        held: list[Frame] = []
        dropped = 0
        offset, want = self.offset, CHUNK_BYTES
        while (asked := min(want, limit - offset)) >= HEADER_BYTES:
            chunk = pread(file, asked, offset)
            view, size, at, more = memoryview(chunk), len(chunk), 0, HEADER_BYTES
            while size - at >= HEADER_BYTES:
                length, crc, epoch, batch, synced, kind, flags, _, topic = unpack(chunk, at)
                end = at + length
                if batch != batch_next or epoch < epoch_min or length < HEADER_BYTES:
                    more = 0
                    break
                if end > size:
                    more = length
                    break
                if crc_of(view[at + 8 : end], length ^ salt) != crc:
                    more = 0
                    break
                if synced > witnessed:
                    witnessed = synced
                    self._mark(batch, offset + at)
                if kind >= KIND_FIRST:
                    held.append((kind, topic, base + offset + at, chunk[at + HEADER_BYTES : end]))
                elif kind == KIND_DROPPED:
                    dropped = int.from_bytes(chunk[at + HEADER_BYTES : end], "little")
                if flags:
                    last_offset, last_crc, batch_end = offset + at, crc, offset + end
                    batch_next, epoch_min, self.dropped = batch + 1, epoch, max(self.dropped, dropped)
                    yield from held
                    held.clear()
                at = end
            offset += at
            if not more or more > limit - offset or size < asked:
                break
            want = max(CHUNK_BYTES, more)
        self.batch, self.epoch, self.witnessed = batch_next, epoch_min, witnessed
        self.last_offset, self.last_crc, self.offset = last_offset, last_crc, batch_end
        self._bad_offset = offset

    def _mark(self, batch: int, offset: int) -> None:
        """Remember where batches lie at which the witness moved, for as long as they may matter."""
        self._marks.append((batch, offset))
        if len(self._marks) > _MARKS_MAX:
            del self._marks[0]

    def _check_end(self, head: Head, after: Head, file: File) -> None:
        """Hold a finished segment against what the next one's head says of it."""
        end = (self.offset, self.batch, self.last_crc)
        if end == (after.previous_end, after.first_batch, after.previous_crc):
            return
        name = segment_name(head.number)
        if self.offset == after.previous_end:
            why = f"the segment ends with another batch than {segment_name(after.number)} says: a copy or a wrong file"
            raise damage(name, self.last_offset, end=self.offset, why=why, batch=self.batch)
        end_offset = self._next_whole(head, file, limit=after.previous_end)
        raise damage(name, self._bad_offset, end=end_offset, why="a bad frame", batch=self.batch)

    def _examine_tail(self, head: Head, file: File) -> None:
        """Decide what lies behind the last whole batch: nothing, a torn tail, or damage."""

        def read(count: int, offset: int) -> bytes:
            return self._disk.pread(file, count, offset)

        size = self._disk.size(file)
        self.torn_end = nonzero_end(read, self.offset, end=size)
        if self.torn_end > self.offset:
            end = min(size, self.torn_end + HEADER_BYTES)
            later = find_frames(read, self._bad_offset, end=end, salt=head.salt, batch=self.batch)
            witness = next((frame for frame in later if frame.synced_batch >= self.batch), None)
            if witness is not None:
                end = self._next_whole(head, file, limit=size)
                why = f"a bad frame (batch {witness.batch} at {witness.offset} says it was synced)"
                raise damage(segment_name(head.number), self._bad_offset, end=end, why=why, batch=self.batch)
        known = [offset for batch, offset in self._marks if batch <= self.witnessed + 1]
        self.unwitnessed_offset = known[-1] if known else HEAD_BYTES

    def _next_whole(self, head: Head, file: File, *, limit: int) -> int:
        """Give the offset of the next frame that is whole, or the limit: the end of the damaged range."""

        def read(count: int, offset: int) -> bytes:
            return self._disk.pread(file, count, offset)

        found = find_frames(read, self._bad_offset + 1, end=limit, salt=head.salt, batch=self.batch)
        return next((frame.offset for frame in found), limit)
