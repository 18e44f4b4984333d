"""Walk the whole batches of one segment: the only place that decides what a good frame is.

Recovery, the tailer and salvage all go through here, so they cannot disagree. A batch counts when its first frame, its
last one and everything between them follow each other without a gap, under the batch number and not below the epoch
that must come next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from crc32c import crc32c

from tenure.log.disk import File
from tenure.log.frame import CHUNK_BYTES, FIRST, HEADER_BYTES, KIND_DROPPED, KIND_FIRST, LAST, unpack_header
from tenure.log.interface import Frame, Position

__all__ = ["Reads", "Walk"]

_MARKS_MAX = 64


class Reads(Protocol):
    """The part of a disk that a walk needs."""

    def pread(self, file: File, count: int, offset: int) -> bytes: ...


class Walk:
    """Walks from a position on; after each batch, and at the end, its fields say how far it got."""

    def __init__(self, disk: Reads, file: File, start: Position, *, salt: int, epoch: int, witnessed: int) -> None:
        self._disk = disk
        self._file = file
        self._salt = salt
        self.segment, self.offset, self.batch, self.last_offset, self.last_crc, self.dropped = start
        #: The epoch of the last batch: no later one may have a lower one.
        self.epoch = epoch
        #: The highest batch that a frame met so far says was synced.
        self.witnessed = witnessed
        #: Where the first frame begins that is not good, once :meth:`batches` has ended.
        self.bad_offset = self.offset
        self._marks: list[tuple[int, int]] = []

    def position(self) -> Position:
        """Return the position after the last whole batch."""
        return Position(self.segment, self.offset, self.batch, self.last_offset, self.last_crc, self.dropped)

    def batches(self, limit: int) -> Iterator[list[Frame]]:
        """Yield the frames of each whole batch that ends below ``limit``, without the log's own. Raises OSError.

        This is the hot loop of a restart: one unpack, one checksum and one slice for a frame.
        """
        file, base, salt = self._file, self.segment << 32, self._salt
        pread, unpack, crc_of = self._disk.pread, unpack_header, crc32c
        batch_next, epoch_min, opening, dropped = self.batch, self.epoch, FIRST, 0
        held: list[Frame] = []
        offset, want = self.offset, CHUNK_BYTES
        while (asked := min(want, limit - offset)) >= HEADER_BYTES:
            chunk = pread(file, asked, offset)
            view, size, at, more = memoryview(chunk), len(chunk), 0, HEADER_BYTES
            while size - at >= HEADER_BYTES:
                length, crc, epoch, batch, synced, kind, flags, _, topic = unpack(chunk, at)
                end = at + length
                if batch != batch_next or epoch < epoch_min or flags & FIRST != opening or length < HEADER_BYTES:
                    more = 0
                    break
                if end > size:
                    more = length
                    break
                if crc_of(view[at + 8 : end], length ^ salt) != crc:
                    more = 0
                    break
                if synced > self.witnessed:
                    self._witness(synced, batch, offset + at)
                if kind >= KIND_FIRST:
                    held.append((kind, topic, base + offset + at, chunk[at + HEADER_BYTES : end]))
                elif kind == KIND_DROPPED:
                    dropped = int.from_bytes(chunk[at + HEADER_BYTES : end], "little")
                opening = 0
                if flags & LAST:
                    batch_next, epoch_min, opening = batch + 1, epoch, FIRST
                    self.batch, self.epoch, self.offset = batch_next, epoch, offset + end
                    self.last_offset, self.last_crc = offset + at, crc
                    if dropped > self.dropped:
                        self.dropped = dropped
                    yield held
                    held = []
                at = end
            offset += at
            if not more or more > limit - offset or size < asked:
                break
            want = max(CHUNK_BYTES, more)
        self.bad_offset = offset

    def unwitnessed_offset(self, default: int) -> int:
        """Return the last known offset before which every batch was synced, or ``default``."""
        known = [offset for batch, offset in self._marks if batch <= self.witnessed + 1]
        return known[-1] if known else default

    def _witness(self, synced: int, batch: int, offset: int) -> None:
        """Note a later witness and its offset; only the newest offsets are kept."""
        self.witnessed = synced
        self._marks.append((batch, offset))
        if len(self._marks) > _MARKS_MAX:
            del self._marks[0]
