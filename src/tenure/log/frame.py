"""The layout of a frame on disk, its checksum, and the search for whole frames after damage.

    length u32 · crc32c u32 · epoch u32 · batch u64 · synced_batch u64 · kind u8 · flags u8 · pad u16 · topic u32 · body

``length`` counts the whole frame. The checksum covers everything after itself and is seeded with the length xor the
salt of the segment: so it covers the length in the same pass, and a record whose payload happens to be a piece of a log
is never taken for a frame, since no producer knows the salt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from tenure.log.interface import Entry

__all__ = [
    "FIRST",
    "HEADER_BYTES",
    "KIND_DROPPED",
    "KIND_EPOCH",
    "KIND_FEATURES",
    "KIND_FIRST",
    "KIND_SEAL",
    "LAST",
    "FoundFrame",
    "Read",
    "checksum",
    "encode_batch",
    "find_frames",
    "nonzero_end",
    "unpack_header",
]

#: Kinds below 16 are the log's own; the rest belong to the broker and are opaque here.
KIND_SEAL = 1
KIND_DROPPED = 2
KIND_EPOCH = 3
KIND_FEATURES = 4
KIND_FIRST = 16

#: Flags of the last and of the first frame of a batch: after damage, a batch is whole only between the two.
LAST = 1
FIRST = 2

_HEADER = Struct("<IIIQQBBHI")
_FRONT = Struct("<II")
_REST = Struct("<IQQBBHI")
HEADER_BYTES = _HEADER.size
_BATCH_AT = 12
_BATCH_TOP_AT = _BATCH_AT + 5

#: How much is read at a time when a whole file is gone through.
CHUNK_BYTES = 1 << 22

unpack_header = _HEADER.unpack_from

#: Reads ``count`` bytes at ``offset``.
Read = Callable[[int, int], bytes]


class FoundFrame(NamedTuple):
    """A whole frame met while searching: where it lies and what its header says."""

    offset: int
    length: int
    epoch: int
    batch: int
    synced_batch: int
    kind: int
    flags: int
    topic: int


def encode_batch(
    entries: Sequence[Entry], salt: int, *, epoch: int, batch: int, synced_batch: int
) -> tuple[bytes, int]:
    """Return the bytes of one batch and the checksum of its last frame."""
    parts: list[bytes] = []
    add = parts.append
    rest_of, front_of, crc_of = _REST.pack, _FRONT.pack, crc32c
    left = len(entries)
    flags, crc = FIRST, 0
    for kind, topic, body in entries:
        left -= 1
        length = HEADER_BYTES + len(body)
        rest = rest_of(epoch, batch, synced_batch, kind, flags if left else flags | LAST, 0, topic) + body
        flags = 0
        crc = crc_of(rest, length ^ salt)
        add(front_of(length, crc))
        add(rest)
    return b"".join(parts), crc


def checksum(frame: bytes | memoryview, salt: int) -> int:
    """Return the checksum that a whole frame must have."""
    return crc32c(memoryview(frame)[8:], len(frame) ^ salt)


def find_frames(read: Read, start: int, *, end: int, salt: int, batch: int) -> Iterator[FoundFrame]:
    """Yield every whole frame of a batch not before ``batch`` that begins in ``start..end``, at any byte.

    After a bad frame the start of the next one is unknown, so every byte is tried: a pattern over the header's
    known bytes first, then what the numbers may be, and the checksum last. Frames inside frames cannot pass (see
    above).
    """
    if end - start < HEADER_BYTES:
        return
    batch_max = batch + (end - start) // HEADER_BYTES + 1
    pattern = _pattern(batch, batch_max)
    offset = start
    while end - offset >= HEADER_BYTES:
        chunk = read(min(CHUNK_BYTES, end - offset), offset)
        used = len(chunk.rstrip(b"\0"))
        for match in pattern.finditer(chunk, 0, min(len(chunk), used + HEADER_BYTES)):
            at = match.start() - _BATCH_TOP_AT
            if at < 0 or at + HEADER_BYTES > len(chunk):
                continue
            length, crc, epoch, found, synced, kind, flags, _, topic = unpack_header(chunk, at)
            if not (HEADER_BYTES <= length <= end - offset - at and synced < found and batch <= found <= batch_max):
                continue
            frame = chunk[at : at + length] if at + length <= len(chunk) else read(length, offset + at)
            if len(frame) == length and checksum(frame, salt) == crc:
                yield FoundFrame(offset + at, length, epoch, found, synced, kind, flags, topic)
        if len(chunk) < HEADER_BYTES or offset + len(chunk) >= end:
            return
        offset += len(chunk) - HEADER_BYTES + 1


def nonzero_end(read: Read, start: int, *, end: int) -> int:
    """Return the offset after the last byte in ``start..end`` that is not zero, or ``start``."""
    found = start
    zeros = bytes(max(0, min(CHUNK_BYTES, end - start)))
    while start < end:
        chunk = read(min(CHUNK_BYTES, end - start), start)
        if not chunk:
            break
        if chunk != zeros and (used := len(chunk.rstrip(b"\0"))):
            found = start + used
        start += len(chunk)
    return found


def _pattern(batch: int, batch_max: int) -> re.Pattern[bytes]:
    """Match at the top three bytes of a batch number in that range, with flags and padding as they must be.

    Where those bytes are zero the five before them are not all zero too, which keeps empty space from matching.
    """
    choices = []
    for top in sorted({batch >> 40, batch_max >> 40}):
        packed = top.to_bytes(3, "little")
        head = b"" if top else rb"(?<!\0\0\0\0\0)"
        choices.append(head + re.escape(packed[:1]) + rb"(?=" + re.escape(packed[1:]) + rb".{8}.[\0-\x03]\0\0)")
    return re.compile(rb"(?s)" + b"|".join(choices))
