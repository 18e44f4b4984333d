"""The salt of a segment, found again from its frames where no head is left to tell it.

A log of one segment has one head, and a flipped bit in it must not cost everything behind it. A checksum is an affine
function of its seed, so a whole frame gives its seed away: 32 equations with 32 unknowns. The frame behind it then has
to agree, or nothing is believed.
"""

from __future__ import annotations

from crc32c import crc32c

from tenure.log.frame import HEADER_BYTES, Read, checksum, unpack_header

__all__ = ["find_salt"]

_TRIES_MAX = 1_000


def find_salt(read: Read, start: int, *, end: int) -> int | None:
    """Give the salt under which two frames in a row from ``start`` on are whole, or None."""
    before = b""
    for _ in range(_TRIES_MAX):
        frame = _frame(read, start, end=end)
        if not frame:
            return None
        if before:
            salt = _seed_of(before) ^ len(before)
            if checksum(frame, salt) == unpack_header(frame)[1]:
                return salt
        before, start = frame, start + len(frame)
    return None


def _frame(read: Read, start: int, *, end: int) -> bytes:
    """Give as many bytes as the header at this place says, none where it says nothing sensible."""
    header = read(min(HEADER_BYTES, end - start), start) if start < end else b""
    if len(header) < HEADER_BYTES:
        return b""
    length: int = unpack_header(header)[0]
    frame = read(length, start) if HEADER_BYTES <= length <= end - start else b""
    return frame if len(frame) == length else b""


def _seed_of(frame: bytes) -> int:
    """Give the seed with which the frame has the checksum in its header."""
    data, wanted = memoryview(frame)[8:], unpack_header(frame)[1]
    zero = crc32c(data, 0)
    rows: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        row, mask = _reduced(crc32c(data, 1 << bit) ^ zero, 1 << bit, rows)
        rows[row.bit_length()] = row, mask
    return _reduced(wanted ^ zero, 0, rows)[1]


def _reduced(value: int, mask: int, rows: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Take rows out of a value, its highest bit first, as long as there is one for it."""
    while value and value.bit_length() in rows:
        row, of = rows[value.bit_length()]
        value, mask = value ^ row, mask ^ of
    return value, mask
