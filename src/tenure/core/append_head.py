"""The head of an encoded append: all of it but the payload, found without decoding the rest.

An `Appended` event is a MessagePack array; its payload is one of its fields, and nearly all of its length. The fields
before it are walked over by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tenure.errors import Corrupt

__all__ = ["AppendHead", "read_head"]

#: Bytes and sign of the integers that MessagePack writes after a type byte, and bytes of the length of a binary field.
_INTEGERS: Final = {
    **{0xCC + power: (1 << power, False) for power in range(4)},
    **{0xD0 + power: (1 << power, True) for power in range(4)},
}
_BINARIES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_FIELDS_MIN: Final = 9
_FIRST_BYTES: Final = 1 << 12
_NUMBERS_BYTES: Final = 64
_FALSE: Final = 0xC2
_TRUE: Final = 0xC3


class AppendHead(NamedTuple):
    """The facts of an append that reading its records takes; ``blobs_at`` is where its payload begins in the body."""

    first_seq: int
    ts_ms: int
    ends: bytes
    blobs_at: int
    blobs_bytes: int
    plain: bool


def read_head(read: Callable[[int, int], bytes], body_bytes: int) -> AppendHead:
    """Return the head of the append whose body ``read(start, count)`` returns in parts. Raises Corrupt."""
    data = read(0, min(_FIRST_BYTES, body_bytes))
    try:
        if not 0x90 + _FIELDS_MIN <= data[0] <= 0x9F:
            raise ValueError("another number of fields")
        at, numbers = 1, []
        for _ in range(5):  # at_ms, topic, ts_ms, first_seq, count
            number, at = _integer(data, at)
            numbers.append(number)
        ends_bytes, ends_at = _binary(data, at)
        ends = read(ends_at, ends_bytes)
        after = ends_at + ends_bytes
        blobs_bytes, blobs_at = _binary(read(after, _NUMBERS_BYTES), 0)
        plain = read(after + blobs_at + blobs_bytes, 1)[0]
        if plain not in (_TRUE, _FALSE):
            raise ValueError("no flag after the payload")
    except (ValueError, KeyError, IndexError) as error:
        raise Corrupt(f"a frame that should hold an append does not: {error}") from error
    return AppendHead(numbers[3], numbers[2], ends, after + blobs_at, blobs_bytes, plain == _TRUE)


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer at an offset, and the offset after it."""
    kind = data[at]
    if kind < 0x80:
        return kind, at + 1
    if kind >= 0xE0:
        return kind - 0x100, at + 1
    size, is_signed = _INTEGERS[kind]
    return int.from_bytes(data[at + 1 : at + 1 + size], "big", signed=is_signed), at + 1 + size


def _binary(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of the binary field at an offset, and the offset where its content begins."""
    size = _BINARIES[data[at]]
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size
