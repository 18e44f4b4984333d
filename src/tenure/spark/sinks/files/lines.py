"""The lines of a file table's log: Spark's own, with a marker that Spark ignores.

A log file is ``v1`` and one JSON object per line, a ``SinkFileStatus`` of Spark, which `spark.read` of the directory
follows. How far each buffer has come is in a line of its own, which names the table's directory. Readers leave out
directories, and fields that they do not know; so the marker is part of the same object that adds the files, also where
it adds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Corrupt
from tenure.spark.sinks.files.schema import TableSchema

__all__ = ["Line", "Mark", "decode", "encode", "file_line", "mark_line"]

_VERSION = b"v1"
_BLOCK_BYTES = 128 << 20
"""Spark's split size of a file where the store gives none; only a hint."""


class Mark(msgspec.Struct, frozen=True):
    """A commit as the log holds it, and which attempt at it won."""

    buffer: str
    sink: str
    low: int
    high: int
    schema_version: int
    attempt: str

    @staticmethod
    def of(commit: Commit, attempt: str) -> Mark:
        return Mark(commit.buffer, commit.sink, commit.low, commit.high, commit.schema_version, attempt)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spark's ``SinkFileStatus``, in its own spelling; ``tenure`` and ``schema`` are ours.

    ``schema`` stands with a mark: that of the table from this commit on.
    """

    path: str
    size: int
    isDir: bool  # noqa: N815 - these names are Spark's
    modificationTime: int  # noqa: N815
    blockReplication: int  # noqa: N815
    blockSize: int  # noqa: N815
    action: str
    tenure: Mark | None = None
    schema: TableSchema | None = None


_decoder = msgspec.json.Decoder(Line)
_encoder = msgspec.json.Encoder()


def file_line(path: str, *, size_bytes: int, modified_ms: int) -> Line:
    """Return the line that adds a file; ``path`` is its URL."""
    return Line(path, size_bytes, False, modified_ms, 1, _BLOCK_BYTES, "add")


def mark_line(table: str, mark: Mark, schema: TableSchema | None = None) -> Line:
    """Return the line that marks how far a buffer has come; ``table`` is the directory's URL."""
    return Line(table, 0, True, 0, 1, _BLOCK_BYTES, "add", mark, schema)


def encode(lines: Iterable[Line]) -> bytes:
    """Return the bytes of a log file."""
    return b"\n".join([_VERSION, *map(_encoder.encode, lines)])


def decode(key: str, data: bytes) -> Sequence[Line]:
    """Return the lines of a log file. Raises Corrupt for other bytes, or an unknown version of Spark's."""
    version, _, rest = data.partition(b"\n")
    if version.strip() != _VERSION:
        raise Corrupt(f"{key} is no log of a file table: it begins with {version[:20]!r}", code="table_log_damaged")
    try:
        return [_decoder.decode(line) for line in rest.splitlines() if line]
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{key} cannot be read: {error}", code="table_log_damaged") from None
