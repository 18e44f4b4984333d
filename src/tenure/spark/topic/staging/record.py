"""The record of a batch: which staged files it consists of, and where each of their chunks lies.

Once it is in the staging directory, it alone decides what is appended, in which chunks and under which numbers. A
replay may bring the same rows in another order and in other files: it changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from tenure.errors import Corrupt, Invalid

__all__ = [
    "Batch",
    "Chunk",
    "Record",
    "StagedFile",
    "client_seq",
    "dump_record",
    "load_record",
    "make_record",
    "parse_client_seq",
    "writer_id",
]

_FORMAT = 1
_CHUNK_BITS = 24
_CHUNKS_MAX = 1 << _CHUNK_BITS
_NUMBERS_MAX = 1 << (63 - _CHUNK_BITS)


class Chunk(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A piece of a staged file that is appended by one call."""

    offset: int
    bytes: int
    rows: int
    crc32c: int


class StagedFile(msgspec.Struct, frozen=True):
    """Rows that one attempt of a task wrote; ``key`` is in the staging directory."""

    key: str
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)


class Batch(msgspec.Struct, frozen=True):
    """The identity of a write: its ``writer``, also the client id of its appends, its number, and the topic.

    Numbers of one writer rise.
    """

    writer: str
    number: int
    topic: str


class Record(msgspec.Struct, frozen=True):
    """The files that were chosen for a batch, in the order in which they are appended."""

    batch: Batch
    files: tuple[StagedFile, ...]
    format: int = _FORMAT

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def chunks(self) -> Iterator[tuple[int, StagedFile, Chunk]]:
        """Yield every chunk with its number in the batch."""
        number = 0
        for file in self.files:
            for chunk in file.chunks:
                yield number, file, chunk
                number += 1


def writer_id(*parts: str) -> str:
    """Return a writer's name, made from what stays the same in every attempt."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16)
    return f"spark-{digest.hexdigest()}"


def client_seq(batch: Batch, chunk: int) -> int:
    """Return the number under which a chunk is appended: above every chunk of every batch before it."""
    return batch.number << _CHUNK_BITS | chunk


def parse_client_seq(seq: int) -> tuple[int, int]:
    """Return the batch and the chunk of a `client_seq`."""
    return seq >> _CHUNK_BITS, seq & (_CHUNKS_MAX - 1)


def make_record(batch: Batch, files: Sequence[StagedFile]) -> Record:
    """Return a record in one order for one set of files. Raises Invalid where it cannot be numbered."""
    if not 0 <= batch.number < _NUMBERS_MAX:
        raise Invalid(f"a batch's number must be from 0 to {_NUMBERS_MAX - 1}; got {batch.number}")
    if sum(len(file.chunks) for file in files) > _CHUNKS_MAX:
        raise Invalid(f"a batch has at most {_CHUNKS_MAX} chunks: write fewer rows at once", code="batch_too_large")
    return Record(batch, tuple(file for file in files if file.chunks))


def dump_record(record: Record) -> bytes:
    """Return the record's bytes."""
    return msgspec.json.encode(record)


def load_record(data: bytes, key: str) -> Record:
    """Parse what `dump_record` wrote. Raises Corrupt (``staged_damaged``, ``format_too_new``)."""
    try:
        record = msgspec.json.decode(data, type=Record)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{key} in the staging directory is no record: {error}", code="staged_damaged") from error
    if record.format > _FORMAT:
        raise Corrupt(f"{key} was written by a newer version of Tenure: use that one", code="format_too_new")
    return record
