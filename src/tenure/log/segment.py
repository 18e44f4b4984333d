"""Segment files: names, heads, creation, and the check that a row of them is one chain.

A segment is created under a spare name: allocated, its head written, synced, and only then renamed into place and the
directory synced. So after a power loss it is there whole or not at all (faults 3 and 4), and its existence proves that
everything before it had been synced, because a roll syncs the old segment first.

The head names the log, the segment's number, its first batch, and the last frame of the segment before. A segment
that is missing, truncated, doubled, swapped or restored from an old copy breaks that chain (fault 10).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tenure.errors import Corrupt
from tenure.log.disk import Disk, File, Files
from tenure.log.features import FEATURES, Feature, FeatureSet, read_list
from tenure.log.frame import FIRST, HEADER_BYTES, KIND_FEATURES, Read, checksum, unpack_header

__all__ = [
    "FORMAT",
    "HEAD_BYTES",
    "SEGMENTS",
    "SPARE",
    "Head",
    "damage_error",
    "decode_head",
    "find_features",
    "list_heads",
    "parse_head",
    "prepare",
    "read_features",
    "read_head",
    "salt_of",
    "segment_name",
    "segment_numbers",
]

MAGIC = b"TENURLOG"
#: The newest layout this program reads and the one it writes.
FORMAT = 1
SEGMENTS = "segments"
SPARE = "segments/spare.tmp"

_HEAD = Struct("<8sIIQQ16sIII")
HEAD_BYTES = _HEAD.size + 4
_NAME = re.compile(r"(\d{10})\.log")


class Head(NamedTuple):
    """The first bytes of a segment."""

    number: int
    first_batch: int
    log_id: bytes
    #: The epoch in which it was created: a floor for the epochs of its frames.
    epoch: int
    #: Where the frames of the segment before end, and the checksum of the last of them.
    previous_end: int
    previous_crc: int

    @property
    def salt(self) -> int:
        return salt_of(self.log_id, self.number)

    @property
    def crc(self) -> int:
        return crc32c(self._packed())

    def pack(self) -> bytes:
        packed = self._packed()
        return packed + crc32c(packed).to_bytes(4, "little")

    def _packed(self) -> bytes:
        chain = (self.number, self.first_batch, self.log_id, self.previous_end, self.previous_crc)
        return _HEAD.pack(MAGIC, FORMAT, self.epoch, *chain, 0)


def segment_name(number: int) -> str:
    return f"{SEGMENTS}/{number:010d}.log"


def segment_numbers(disk: Disk) -> list[int]:
    """List the numbers of the segment files, ascending; other names are ignored."""
    return [int(match[1]) for name in disk.listdir(SEGMENTS) if (match := _NAME.fullmatch(name))]


def salt_of(log_id: bytes, number: int) -> int:
    """Return the seed of a segment's checksums: no other segment, and no payload, passes for a part of it."""
    return crc32c(number.to_bytes(8, "little"), crc32c(log_id))


def parse_head(data: bytes, number: int) -> Head:
    """Decode the head of this segment; raises Corrupt where it is damaged, another one's, or of a newer format."""
    name = segment_name(number)
    head = decode_head(data, name)
    if head.number != number:
        raise damage_error(
            name, 0, end=HEAD_BYTES, why=f"the file holds segment {head.number}: it was copied or renamed"
        )
    return head


def decode_head(data: bytes, name: str) -> Head:
    """Decode the head of the segment in a file, of any number; raises Corrupt."""
    if len(data) >= 12 and data[:8] == MAGIC and (version := int.from_bytes(data[8:12], "little")) > FORMAT:
        message = f"{name} has format {version}, this program reads up to {FORMAT}: use a newer one. Nothing changed."
        raise Corrupt(message, code="format_too_new", file=name, format=version)
    if len(data) < HEAD_BYTES:
        raise damage_error(name, 0, end=HEAD_BYTES, why=f"the file has only {len(data)} bytes, not even a whole head")
    if crc32c(data[: _HEAD.size]) != int.from_bytes(data[_HEAD.size : HEAD_BYTES], "little") or data[:8] != MAGIC:
        raise damage_error(name, 0, end=HEAD_BYTES, why="the head of the segment fails its checksum")
    _, _, epoch, number, first_batch, log_id, previous_end, previous_crc, _ = _HEAD.unpack_from(data)
    return Head(number, first_batch, log_id, epoch, previous_end, previous_crc)


def list_heads(disk: Disk, *, known: Sequence[Feature] = FEATURES) -> list[Head]:
    """Read the heads of the newest unbroken row of segments, oldest first, and check that they are one chain.

    Segments below a gap are left out: they are either declared dropped further on, or the gap is corruption; which,
    is known at the end of a replay. Raises Corrupt where they are no chain, or use a feature that is not ``known``.
    """
    numbers = segment_numbers(disk)
    first = len(numbers)
    while first and (first == len(numbers) or numbers[first - 1] + 1 == numbers[first]):
        first -= 1
    found = [read_head(disk, number) for number in numbers[first:]]
    for (before, size), (head, _) in pairwise(found):
        _check_link(before, head)
        if size < head.previous_end:
            name = segment_name(before.number)
            raise damage_error(name, size, end=head.previous_end, why="the file was cut short")
    heads = [head for head, _ in found]
    find_features(disk, [(segment_name(head.number), head) for head in heads], known=known)
    return heads


def read_head(disk: Disk, number: int) -> tuple[Head, int]:
    """Return the head of a segment and the size of its file. Raises Corrupt, OSError."""
    file = disk.open(segment_name(number))
    try:
        return parse_head(disk.pread(file, HEAD_BYTES, 0), number), disk.size(file)
    finally:
        disk.close(file)


def find_features(disk: Files, files: Sequence[tuple[str, Head]], *, known: Sequence[Feature]) -> FeatureSet | None:
    """Return the features that the segments in these files, oldest first, use; None where there is not one frame.

    The newest segment lists them all; one whose first frame is not whole was begun and got no further. Raises Corrupt
    for a feature that is not ``known``, OSError.
    """
    for name, head in reversed(files):
        file = disk.open(name)
        try:
            features = read_features(partial(disk.pread, file), head, known=known)
        finally:
            disk.close(file)
        if features is not None:
            return features
    return None


def read_features(read: Read, head: Head, *, known: Sequence[Feature]) -> FeatureSet | None:
    """Return the features that a segment uses, or None where its first frame is not whole. Raises Corrupt, OSError."""
    header = read(HEADER_BYTES, HEAD_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length, crc, _, batch, _, kind, flags, _, _ = unpack_header(header)
    if batch != head.first_batch or not flags & FIRST or length < HEADER_BYTES:
        return None
    frame = read(length, HEAD_BYTES)
    if len(frame) != length or checksum(frame, head.salt) != crc:
        return None
    return FeatureSet(read_list(frame[HEADER_BYTES:]) if kind == KIND_FEATURES else (), known=known)


def _check_link(before: Head, head: Head) -> None:
    name = segment_name(head.number)
    if head.log_id != before.log_id:
        raise damage_error(name, 0, end=HEAD_BYTES, why="the segment belongs to another log")
    if head.first_batch < before.first_batch or head.epoch < before.epoch:
        raise damage_error(name, 0, end=HEAD_BYTES, why="the segment is older than the one before it")


def prepare(disk: Disk, size: int) -> File:
    """Make a spare file of this size, its space charged; on failure nothing is left but perhaps the spare name."""
    file = disk.create(SPARE)
    try:
        disk.allocate(file, size)
    except BaseException:
        disk.close(file)
        raise
    return file


def damage_error(file: str, offset: int, *, end: int, why: str, batch: int | None = None) -> Corrupt:
    """Build the error for damaged bytes; it names file, offset and range, and what to do."""
    about = f" of batch {batch}" if batch is not None else ""
    message = f"{file}: {why} at offset {offset}{about}, bytes {offset}..{end}. Verify the directory, then salvage it."
    return Corrupt(message, file=file, offset=offset, end=end, batch=batch)
