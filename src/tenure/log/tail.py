"""Tail the log from another process: read-only, without its lock, durable batches only.

A batch is handed out once a later one says that it was synced: by the ``synced_batch`` of a frame, by a seal, or by a
later segment. Batches that a crash could still take back are never shown. Only a position is kept between two polls,
so a torn tail that the writer cut off is never seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tenure.log.disk import Disk, PosixDisk
from tenure.log.features import FEATURES, Feature
from tenure.log.interface import Frame, Position, UnknownPosition
from tenure.log.reader import read_error
from tenure.log.recovery import locate
from tenure.log.segment import HEAD_BYTES, Head, damage_error, find_features, read_head, segment_name, segment_numbers
from tenure.log.walk import Walk

__all__ = ["TailBatch", "TailGap", "Tailer"]


class TailBatch(NamedTuple):
    """One durable batch, and the position to go on from once it has been dealt with."""

    batch: int
    epoch: int
    frames: list[Frame]
    position: Position


class TailGap(NamedTuple):
    """Batches that were dropped before they could be read; the tail goes on after them."""

    first_batch: int
    last_batch: int
    position: Position


class Tailer:
    """Reads a log that another process writes, from a position or from the oldest segment there is."""

    def __init__(
        self, disk: Disk | str | Path, position: Position | None = None, *, known: Sequence[Feature] = FEATURES
    ) -> None:
        self._disk = PosixDisk(disk, create=False) if isinstance(disk, (str, Path)) else disk
        #: Where the next poll begins; None until the first segment has been seen.
        self.position = position
        self._epoch = 0
        self._checked = position is None
        self._known = known
        #: The segment whose features are known: they are the same up to its end.
        self._readable_segment = 0

    def poll(self) -> Iterator[TailBatch | TailGap]:
        """Yield everything durable that is new, then end; ``position`` moves with each item.

        Raises UnknownPosition where the log never went through the position, Corrupt where a batch that must be whole
        is not, or where the log uses a feature that is not known.
        """
        moved = True
        while moved:
            before = self.position
            with suppress(FileNotFoundError):  # The segment was dropped between two calls: look again.
                yield from self._poll_segment()
            moved = self.position != before and self.position is not None

    def _poll_segment(self) -> Iterator[TailBatch | TailGap]:
        """Yield what is durable in the segment of the position, and step into the next one at its end."""
        numbers = segment_numbers(self._disk)
        if not numbers:
            return
        if self.position is None:
            self.position = _beginning(read_head(self._disk, numbers[0])[0])
        elif self.position.segment < numbers[0]:
            yield from self._skip_to(read_head(self._disk, numbers[0])[0])
        number = self.position.segment
        if number not in numbers:
            raise UnknownPosition(f"segment {number} is not part of the log")
        after = read_head(self._disk, number + 1)[0] if number + 1 in numbers else None
        head, size = read_head(self._disk, number)
        if not self._checked:
            self._epoch = locate(self._disk, [head], self.position).epoch
            self._checked = True
        if not self._is_readable(head) and after is None and self.position.offset == HEAD_BYTES:
            return  # The segment was begun, and nothing in it is durable yet.
        try:
            yield from self._batches(head, after, limit=size if after is None else after.previous_end)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise read_error(error, number, self.position.offset) from error

    def _is_readable(self, head: Head) -> bool:
        """Return whether the features of the segment are known; False where it has no whole frame. Raises Corrupt."""
        if self._readable_segment != head.number:
            if find_features(self._disk, [(segment_name(head.number), head)], known=self._known) is None:
                return False
            self._readable_segment = head.number
        return True

    def _skip_to(self, head: Head) -> Iterator[TailGap]:
        assert self.position is not None
        missed = self.position.batch
        self.position, self._checked = _beginning(head), True
        if missed < head.first_batch:
            yield TailGap(missed, head.first_batch - 1, self.position)

    def _batches(self, head: Head, after: Head | None, *, limit: int) -> Iterator[TailBatch]:
        """Yield the batches that a later frame witnesses as synced, and hold the others back until one does."""
        assert self.position is not None
        file = self._disk.open(segment_name(head.number))
        try:
            durable = head.first_batch - 1 if after is None else after.first_batch - 1
            walk = Walk(self._disk, file, self.position, salt=head.salt, epoch=self._epoch, witnessed=durable)
            held: list[TailBatch] = []
            for frames in walk.batches(limit):
                held.append(TailBatch(walk.batch - 1, walk.epoch, frames, walk.position()))
                if walk.witnessed >= held[0].batch:
                    count = sum(1 for each in held if each.batch <= walk.witnessed)
                    yield from self._give(held[:count])
                    del held[:count]
        finally:
            self._disk.close(file)
        if after is not None:
            if walk.offset != limit:
                why = "a bad frame"
                raise damage_error(segment_name(head.number), walk.bad_offset, end=limit, why=why, batch=walk.batch)
            self.position = _beginning(after)

    def _give(self, batches: list[TailBatch]) -> Iterator[TailBatch]:
        for batch in batches:
            self.position, self._epoch = batch.position, batch.epoch
            yield batch


def _beginning(head: Head) -> Position:
    return Position(head.number, HEAD_BYTES, head.first_batch, 0, head.crc)
