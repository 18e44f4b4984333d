"""Read the input of `tenure put` as batches of records: arguments, a file, or standard input line by line.

A batch is sent when it is full, or when a pipe has no more data for a moment: so ``tail -f log | tenure put …`` puts
each line soon, and a long file goes a thousand lines at a time.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tenure.errors import Invalid

__all__ = ["BATCH_RECORDS", "Batch", "from_arguments", "from_lines", "lines_are_piped_in", "open_lines"]

BATCH_RECORDS: Final = 1_000
BATCH_BYTES: Final = 4 << 20
LINE_BYTES_MAX: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20
_LINGER_S: Final = 0.1
_STDIN: Final = 0
_encode = msgspec.json.Encoder().encode
_raw = msgspec.json.Decoder(msgspec.Raw).decode


class Batch(msgspec.Struct):
    """Values to put together, as JSON text, from the lines (or arguments) ``first`` to ``last``.
    ``read_bytes`` counts everything read so far.
    """

    values: list[bytes]
    first: int
    last: int
    read_bytes: int = 0


def from_arguments(arguments: Sequence[str], *, text: bool) -> Iterator[Batch]:
    """Yield the arguments, a thousand at a time."""
    values = [
        _value(os.fsencode(argument), text=text, where=f"argument {n}") for n, argument in enumerate(arguments, 1)
    ]
    for start in range(0, len(values), BATCH_RECORDS):
        part = values[start : start + BATCH_RECORDS]
        yield Batch(part, start + 1, start + len(part))


def lines_are_piped_in() -> bool:
    """Return whether standard input is a pipe, a socket or a file, and so meant to be read; a terminal or /dev/null is
    only the default of a command.
    """
    try:
        mode = os.fstat(_STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def open_lines(path: Path | None) -> tuple[int, int | None]:
    """Open a file, or standard input for None; return its descriptor and its size in bytes, where that is known."""
    if path is None:
        return _STDIN, None
    if path.is_dir():  # opening it succeeds, and the error of reading would not name it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    size = os.fstat(descriptor).st_size
    return descriptor, size or None


def from_lines(descriptor: int, *, text: bool) -> Iterator[Batch]:
    """Yield the lines of a stream: JSON values (blank lines are skipped), or with ``text`` strings. A byte order mark,
    which some editors write, is skipped. Raises Invalid for a line that is neither, after the lines before it were
    yielded.
    """
    batch, held_bytes = Batch([], 1, 0), 0
    for number, line, read_bytes in _lines(descriptor):
        content = line.removeprefix(codecs.BOM_UTF8) if line is not None and number == 1 else line
        batch.read_bytes = read_bytes
        if content is not None and (text or content.strip()):
            try:
                value = _value(content, text=text, where=f"line {number:,}")
            except Invalid:
                if batch.values:
                    yield batch
                raise
            batch.values.append(value)
            batch.last = number
            held_bytes += len(value)
        full = len(batch.values) == BATCH_RECORDS or held_bytes >= BATCH_BYTES
        if batch.values and (content is None or full):
            yield batch
            batch, held_bytes = Batch([], batch.last + 1, batch.last), 0


def _lines(descriptor: int) -> Iterator[tuple[int, bytes | None, int]]:
    """Yield lines with their numbers and the bytes read so far; None in place of a line is a pause, or the end."""
    number, read_bytes, rest = 0, 0, b""
    while True:
        if not _more_soon(descriptor):
            yield number, None, read_bytes
        chunk = os.read(descriptor, _CHUNK_BYTES)
        read_bytes += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n") if chunk else ((rest, b"") if rest else (b"",))
        for content in whole:
            number += 1
            yield number, content.removesuffix(b"\r"), read_bytes
        if len(rest) > LINE_BYTES_MAX:
            raise Invalid(f"line {number + 1:,} is longer than {LINE_BYTES_MAX:,} bytes")
        if not chunk:
            yield number, None, read_bytes
            return


def _more_soon(descriptor: int) -> bool:
    readable, _, _ = select.select([descriptor], [], [], _LINGER_S)
    return bool(readable)


def _value(content: bytes, *, text: bool, where: str) -> bytes:
    """Return one value as JSON text. Raises Invalid, naming the place."""
    try:
        words = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{where} is not UTF-8: {error.reason}") from None
    if text:
        return _encode(words)
    try:
        _raw(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(f"{where} is not JSON ({error}): quote strings, or say --text") from None
    return content.strip()
