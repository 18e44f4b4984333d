"""Unpublished segments: begun, but not yet renamed to their final name when the process died.

A roll goes on in such a file at once, and the next sync publishes it. After a kill everything written to it is there,
and it belongs to the log. After a power loss the segment before it may miss its end: then nothing after that was
acknowledged as durable, and the file is as good as a spare.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tenure.errors import Corrupt
from tenure.log.disk import Disk, write_whole
from tenure.log.frame import CHUNK_BYTES
from tenure.log.interface import Position
from tenure.log.segment import HEAD_BYTES, SEGMENTS, Head, parse_head, segment_name
from tenure.log.spare_segments import unpublished_name
from tenure.log.walk import Walk

__all__ = ["Unpublished", "begun_segments", "clear_spares", "find_unpublished", "list_unpublished", "publish_next"]

_NAME = re.compile(r"\d{10}\.new")


class Unpublished(NamedTuple):
    """An unpublished segment that the log went on in.

    ``unwitnessed_offset`` is where, in the segment before it, nothing says any more that it was synced.
    """

    head: Head
    unwitnessed_offset: int

    @property
    def name(self) -> str:
        return unpublished_name(self.head.number)


def list_unpublished(disk: Disk, last: Head) -> list[Unpublished]:
    """List the unpublished segments after ``last``, in order; changes nothing. Raises OSError."""
    found: list[Unpublished] = []
    name = segment_name(last.number)
    while (after := find_unpublished(disk, last, name)) is not None:
        found.append(after)
        last, name = after.head, after.name
    return found


def find_unpublished(disk: Disk, before: Head, name: str) -> Unpublished | None:
    """Return the unpublished segment after ``before``, whose file is ``name``, if the log went on there.

    Raises OSError.
    """
    head = _read_head(disk, before.number + 1)
    if head is None or head.log_id != before.log_id:
        return None
    file = disk.open(name)
    try:
        start = Position(before.number, HEAD_BYTES, before.first_batch, 0, before.crc)
        walk = Walk(disk, file, start, salt=before.salt, epoch=before.epoch, witnessed=before.first_batch - 1)
        for _ in walk.batches(head.previous_end):
            pass
    finally:
        disk.close(file)
    reached = (walk.offset, walk.batch, walk.last_crc)
    if reached != (head.previous_end, head.first_batch, head.previous_crc):
        return None
    return Unpublished(head, walk.unwitnessed_offset(HEAD_BYTES))


def publish_next(disk: Disk, before: Head, found: Unpublished) -> None:
    """Publish the segment after ``before``, as the next sync would have done.

    What may not be durable is written once more, because a sync of the process before may have failed (fault 13).
    Raises OSError.
    """
    head = found.head
    _write_again(disk, segment_name(before.number), found.unwitnessed_offset, end=head.previous_end)
    _write_again(disk, found.name, 0, end=HEAD_BYTES)
    disk.rename(found.name, segment_name(head.number))
    disk.sync_dir(SEGMENTS)


def begun_segments(disk: Disk) -> list[int]:
    """Return the numbers of unpublished segments that were begun, ascending; spares are left out."""
    numbers = [int(name[:10]) for name in disk.listdir(SEGMENTS) if _NAME.fullmatch(name)]
    return [number for number in numbers if _read_head(disk, number) is not None]


def clear_spares(disk: Disk) -> None:
    """Remove the spares of the process before: their content may not be zeros."""
    for name in disk.listdir(SEGMENTS):
        if _NAME.fullmatch(name):
            disk.unlink(f"{SEGMENTS}/{name}")


def _read_head(disk: Disk, number: int) -> Head | None:
    if unpublished_name(number).rpartition("/")[2] not in disk.listdir(SEGMENTS):
        return None
    file = disk.open(unpublished_name(number))
    try:
        return parse_head(disk.pread(file, HEAD_BYTES, 0), number)
    except Corrupt:
        return None  # A spare: nothing, or not even a whole head, was written to it.
    finally:
        disk.close(file)


def _write_again(disk: Disk, name: str, start: int, *, end: int) -> None:
    file = disk.open(name, write=True)
    try:
        while start < end:
            data = disk.pread(file, min(CHUNK_BYTES, end - start), start)
            write_whole(disk, file, data, offset=start)
            start += len(data)
        disk.sync(file)
    finally:
        disk.close(file)
