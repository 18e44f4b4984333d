"""Recovery: one pass over the log that checks, replays, and finds where the next batch goes.

The rule. A bad frame of batch B is corruption if a valid later frame carries ``synced_batch >= B``, or if a later
segment exists, since a roll syncs first. Otherwise B was never acknowledged as durable: the log is torn from the start
of B, and nothing after it is resurrected, however valid it looks (faults 5, 6, 7).

Scan and replay are the same pass, so nothing is verified twice: a frame is handed out as soon as its batch is complete.
Where damage is met further on, the pass raises Corrupt, and the caller discards what it has built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenure.log.disk import File, Files
from tenure.log.frame import HEADER_BYTES, LAST, Read, checksum, find_frames, nonzero_end, unpack_header
from tenure.log.interface import Frame, Position, UnknownPosition
from tenure.log.reader import read_error
from tenure.log.segment import HEAD_BYTES, Head, damage_error, segment_name
from tenure.log.walk import Walk

__all__ = ["RecoveryReport", "Scan", "locate"]


class RecoveryReport(NamedTuple):
    """The outcome of a recovery; torn bytes are reported once, because they are gone afterwards."""

    epoch: int
    batches: int
    torn_file: str | None
    torn_offset: int
    torn_bytes: int
    unlinked: tuple[int, ...]


class Start(NamedTuple):
    """The start of a scan, with the epoch and the witness of the frame before it."""

    place: int
    position: Position
    epoch: int
    witnessed: int


def locate(disk: Files, heads: Sequence[Head], position: Position | None) -> Start:
    """Find a position in the chain. Raises UnknownPosition where the log did not go through it.

    A position beyond the end of the log points at zeros, like one at the end: only the frame before it shows which.
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


def _frame_before(disk: Files, head: Head, position: Position, *, place: int) -> Start:
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
        self, disk: Files, heads: Sequence[Head], *, after: Position | None = None, stop: Position | None = None
    ) -> None:
        self._disk = disk
        self._heads = heads
        self._start = locate(disk, heads, after)
        self._stop = stop
        #: The position after the last whole batch, and the epoch of that batch.
        self.end = self._start.position
        self.epoch = self._start.epoch
        #: The offset in the last segment from which no frame witnesses a sync.
        self.unwitnessed_offset = HEAD_BYTES
        #: Where the bytes that are not zero end, after the last whole batch.
        self.torn_end = 0

    @property
    def batches(self) -> int:
        return self.end.batch - self._start.position.batch

    def frames(self) -> Iterator[Frame]:
        """Yield the frames of whole batches in order. Raises Corrupt."""
        heads = self._heads
        witnessed = self._start.witnessed
        for place in range(self._start.place, len(heads)):
            head = heads[place]
            after = heads[place + 1] if place + 1 < len(heads) else None
            if place > self._start.place:
                self._enter(head)
                witnessed = max(witnessed, head.first_batch - 1)
            try:
                file = self._disk.open(segment_name(head.number))
                try:
                    walk = Walk(self._disk, file, self.end, salt=head.salt, epoch=self.epoch, witnessed=witnessed)
                    for batch in walk.batches(self._limit(file, after)):
                        yield from batch
                    self.end, self.epoch, witnessed = walk.position(), walk.epoch, walk.witnessed
                    self._check_end(head, after, walk, file=file)
                finally:
                    self._disk.close(file)
            except OSError as error:
                raise read_error(error, head.number, self.end.offset) from error

    def _limit(self, file: File, after: Head | None) -> int:
        if after is not None:
            return after.previous_end
        return self._disk.size(file) if self._stop is None else self._stop.offset

    def _enter(self, head: Head) -> None:
        self.end = Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc, self.end.dropped)
        self.epoch = max(self.epoch, head.epoch)

    def _check_end(self, head: Head, after: Head | None, walk: Walk, *, file: File) -> None:
        """Check the end of a segment against the next head, the writer's position, or its own tail. Raises Corrupt."""
        if after is None and self._stop is None:
            self._examine_tail(head, walk, file=file)
            return
        limit = self._limit(file, after)
        if walk.offset != limit:
            end = _next_whole(self._reads(file), walk, limit=limit, salt=head.salt)
            raise damage_error(segment_name(head.number), walk.bad_offset, end=end, why="a bad frame", batch=walk.batch)
        if after is not None and (walk.batch, walk.last_crc) != (after.first_batch, after.previous_crc):
            why = f"this is not the segment that {segment_name(after.number)} follows: an old copy or a wrong file,"
            raise damage_error(segment_name(head.number), 0, end=walk.offset, why=why)

    def _examine_tail(self, head: Head, walk: Walk, *, file: File) -> None:
        """Decide what follows the last whole batch: nothing, a torn tail, or damage, which raises Corrupt."""
        read = self._reads(file)
        size = self._disk.size(file)
        self.unwitnessed_offset = walk.unwitnessed_offset(HEAD_BYTES)
        self.torn_end = nonzero_end(read, walk.offset, end=size)
        if self.torn_end == walk.offset:
            return
        end = min(size, self.torn_end + HEADER_BYTES)
        later = find_frames(read, walk.bad_offset, end=end, salt=head.salt, batch=walk.batch)
        witness = next((frame for frame in later if frame.synced_batch >= walk.batch), None)
        if witness is not None:
            end = _next_whole(read, walk, limit=size, salt=head.salt)
            why = f"a bad frame (batch {witness.batch} at offset {witness.offset} says that it was synced)"
            raise damage_error(segment_name(head.number), walk.bad_offset, end=end, why=why, batch=walk.batch)

    def _reads(self, file: File) -> Read:
        return lambda count, offset: self._disk.pread(file, count, offset)


def _next_whole(read: Read, walk: Walk, *, limit: int, salt: int) -> int:
    """Return the offset of the next frame that is whole, or the limit: the end of the damaged range."""
    found = find_frames(read, walk.bad_offset + 1, end=limit, salt=salt, batch=walk.batch)
    return next((frame.offset for frame in found), limit)
