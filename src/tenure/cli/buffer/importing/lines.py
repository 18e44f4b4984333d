"""Lines as entries: each as its bytes are, without its end; blank ones are skipped."""

from __future__ import annotations

from collections.abc import Iterator

from tenure.cli.buffer.importing.part import CALL_BYTES, ENTRY_BYTES_MAX, Part, bad_input, too_large
from tenure.cli.buffer.importing.sniff import AS_IT_IS
from tenure.cli.buffer.importing.stream import Stream

__all__ = ["line_parts"]


def line_parts(stream: Stream, name: str, *, text_only: bool) -> Iterator[Part]:
    """Yield the lines of each read as soon as they are there, so that a pipe that stays open is produced on.

    Raises Invalid (``bad_input``) for a line that is too long, and with ``text_only`` for one with a NUL byte.
    """
    pieces: list[bytes] = []  # of the line whose end is not there yet
    length, number = 0, 1
    while chunk := stream.take(CALL_BYTES):
        if text_only and b"\0" in chunk:
            at = number + chunk.count(b"\n", 0, chunk.index(b"\0"))
            raise bad_input(f"{name}: line {at}", f"has a NUL byte, as binary data has: {AS_IT_IS}")
        first, end, rest = chunk.partition(b"\n")
        pieces.append(first)
        length += len(first)
        if length > ENTRY_BYTES_MAX:
            raise too_large(f"{name}: line {number}")
        if end:
            *whole, last = rest.split(b"\n")
            lines = [b"".join(pieces), *whole]
            yield _part(lines)
            number += len(lines)
            pieces, length = [last], len(last)
    if length:
        yield _part([b"".join(pieces)])


def _part(lines: list[bytes]) -> Part:
    entries = [entry for line in lines if (entry := line.removesuffix(b"\r")).strip()]
    return Part(entries, len(lines) - len(entries))
