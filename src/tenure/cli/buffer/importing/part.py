"""Entries for one produce call, and what was passed over on the way to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tenure.errors import Invalid
from tenure.limits import MIB

__all__ = ["CALL_BYTES", "ENTRY_BYTES_MAX", "Part", "bad_input", "gathered", "too_large"]

CALL_BYTES: Final = 1 << 18
"""The bytes of a call, about."""
ENTRY_BYTES_MAX: Final = 64 * MIB


class Part(NamedTuple):
    """Entries for one call, and the blank lines that were skipped among them."""

    entries: list[bytes]
    blank: int = 0


def gathered(entries: Iterable[bytes | None]) -> Iterator[Part]:
    """Yield parts of about ``CALL_BYTES``; None is a blank line."""
    part: list[bytes] = []
    size = blank = 0
    for entry in entries:
        if entry is None:
            blank += 1
            continue
        part.append(entry)
        size += len(entry)
        if size >= CALL_BYTES:
            yield Part(part, blank)
            part, size, blank = [], 0, 0
    if part or blank:
        yield Part(part, blank)


def bad_input(where: str, problem: str) -> Invalid:
    """Make the error for a place in a file that cannot be read as what the file was taken for."""
    return Invalid(f"{where}: {problem}", code="bad_input")


def too_large(where: str) -> Invalid:
    """Make the error for an entry that exceeds ``ENTRY_BYTES_MAX``."""
    return bad_input(where, f"longer than {ENTRY_BYTES_MAX:,} bytes: one entry cannot hold it")
