"""The format of a batch: a Parquet object with zstd and page checksums, readable by any Parquet reader.

The columns are ``entry`` (binary) and ``range`` (int32: the number of the produce call it came with). The calls' times
and metadata are in the file's key-value metadata, so that a thousand small calls cost the manifest nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tenure.buffer.batch.pages import decoded_bytes
from tenure.buffer.manifest.format import FORMAT, Entry, checksum_of
from tenure.buffer.manifest.keys import batch_key
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt

__all__ = [
    "Batch",
    "Descriptor",
    "Range",
    "decode_batch",
    "encode_batch",
    "footer_ranges",
    "gone",
    "load_encoder",
    "unusable",
]

_ABOUT = b"tenure.batch"
_RANGES = b"tenure.ranges"
_SCHEMA = pa.schema([pa.field("entry", pa.binary(), nullable=False), pa.field("range", pa.int32(), nullable=False)])


class Descriptor(msgspec.Struct, frozen=True):
    """The location of one batch and what its object must turn out to be: all that is needed to fetch it."""

    seq: int
    location: str
    bytes: int
    entries: int
    checksum: str
    producer: str
    ordinal: int
    first_ms: int
    last_ms: int
    buffer_id: str

    @classmethod
    def of(cls, seq: int, entry: Entry, buffer_id: str) -> Descriptor:
        return cls(
            seq=seq,
            location=batch_key(entry.name),
            bytes=entry.bytes,
            entries=entry.entries,
            checksum=entry.checksum,
            producer=entry.producer,
            ordinal=entry.ordinal,
            first_ms=entry.first_ms,
            last_ms=entry.last_ms,
            buffer_id=buffer_id,
        )


class Range(msgspec.Struct, frozen=True, array_like=True):
    """One produce call within a batch: its first entry's index, when it came, and the caller's metadata."""

    start: int
    ingested_ms: int
    metadata: bytes


class _About(msgspec.Struct):
    format: int
    buffer: str
    producer: str
    ordinal: int


class Batch:
    """A fetched batch: its sequence, its entries, and the calls they came with."""

    def __init__(self, descriptor: Descriptor, table: pa.Table, ranges: list[Range]) -> None:
        self.descriptor = descriptor
        self.table = table
        self.ranges = ranges

    @property
    def seq(self) -> int:
        return self.descriptor.seq

    @cached_property
    def entries(self) -> list[bytes]:
        """Return the entries in the order in which they were produced; the list is made on first use."""
        entries: list[bytes] = self.table.column("entry").to_pylist()
        return entries

    def range_of(self, index: int) -> Range:
        """Return the produce call that the entry at ``index`` came with."""
        return self.ranges[bisect_right(self.ranges, index, key=lambda range_: range_.start) - 1]


def load_encoder() -> None:
    """Import what pyarrow imports with its first array (pandas, where it is installed), before a batch waits for it."""
    pa.array([b""], pa.binary())


def encode_batch(
    calls: Sequence[tuple[Sequence[bytes], Range]], *, buffer_id: str, producer: str, ordinal: int, level: int
) -> memoryview:
    """Return the object's bytes for these produce calls, as a view of where they were encoded: a copy would cost."""
    entries: list[bytes] = []
    numbers = array("i")
    for number, (call, _) in enumerate(calls):
        entries += call
        numbers.extend(array("i", [number]) * len(call))
    columns = [
        pa.array(entries, pa.binary()),
        pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)]),
    ]
    about = msgspec.json.encode(_About(FORMAT, buffer_id, producer, ordinal))
    ranges = msgspec.json.encode([range_ for _, range_ in calls])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        compression_level=level,
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(pa.table(columns, schema=_SCHEMA), row_group_size=max(len(entries), 1))
        writer.add_key_value_metadata({_ABOUT: about, _RANGES: ranges})
    return memoryview(sink.getvalue()).cast("B")  # obstore takes no other kind


def decode_batch(data: bytes, descriptor: Descriptor, settings: BufferSettings) -> Batch:
    """Return the batch in an object's bytes, which must be what the manifest says.

    Raises Corrupt with a code for the difference: ``batch_truncated``, ``batch_damaged``, ``unknown_format``,
    ``foreign_batch``, ``batch_too_large``. The decoded size is checked before anything is inflated.
    """
    if len(data) != descriptor.bytes:
        raise unusable(descriptor, "batch_truncated", f"it has {len(data):,} bytes instead of {descriptor.bytes:,}")
    if checksum_of(data) != descriptor.checksum:
        raise unusable(descriptor, "batch_damaged", "its checksum does not match")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))  # the whole object's checksum was checked: pages need no check
        ranges = footer_ranges(file, descriptor)
        _check_size(decoded_bytes(data, file.metadata, plain_column=0), descriptor, settings)
        # In this thread alone: two columns gain nothing from a pool, whose threads may abort a process that ends.
        table = file.read(columns=["entry", "range"], use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise unusable(descriptor, "batch_damaged", f"it cannot be read as Parquet: {error}") from None
    return Batch(descriptor, table, ranges)


def footer_ranges(file: Any, descriptor: Descriptor) -> list[Range]:
    """Return the produce calls that a batch's footer lists, after checking that it is this batch's. Raises Corrupt.

    ``file`` is a ``pyarrow.parquet.ParquetFile``; only its footer is read.
    """
    metadata = file.metadata
    stored = metadata.metadata or {}
    try:
        about = msgspec.json.decode(stored[_ABOUT], type=_About)
        if about.format > FORMAT:
            raise unusable(descriptor, "unknown_format", f"it has format {about.format}: upgrade this program")
        ranges = msgspec.json.decode(stored[_RANGES], type=list[Range])
    except (KeyError, msgspec.DecodeError) as error:
        raise unusable(descriptor, "foreign_batch", f"it is not a batch of Tenure: {error!r}") from None
    if (about.buffer, about.producer, about.ordinal) != (descriptor.buffer_id, descriptor.producer, descriptor.ordinal):
        raise unusable(
            descriptor, "foreign_batch", f"it is batch {about.ordinal} of {about.producer} in {about.buffer}"
        )
    if file.schema_arrow.remove_metadata() != _SCHEMA or metadata.num_rows != descriptor.entries:
        raise unusable(descriptor, "foreign_batch", f"it holds {metadata.num_rows} rows of {file.schema_arrow.names}")
    starts = [range_.start for range_ in ranges]
    if not starts or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= metadata.num_rows:
        raise unusable(descriptor, "foreign_batch", "its ranges do not cover its entries")
    return ranges


def _check_size(size: int, descriptor: Descriptor, settings: BufferSettings) -> None:
    """Raise Corrupt, before inflating, if the decoded size exceeds the limit or is too small for the entries."""
    if size > settings.decoded_bytes_max or descriptor.entries * 4 > size:
        raise unusable(descriptor, "batch_too_large", f"{descriptor.entries:,} entries in {size:,} bytes once decoded")


def unusable(descriptor: Descriptor, code: str, why: str) -> Corrupt:
    """Make the error for a batch that is there and cannot be used."""
    return Corrupt(
        f"batch {descriptor.seq} ({descriptor.location}) is unusable: {why}. Restore it, or quarantine it",
        code=code,
        seq=descriptor.seq,
        location=descriptor.location,
    )


def gone(descriptor: Descriptor) -> Corrupt:
    """Make the error for a batch that is not there."""
    return Corrupt(
        f"batch {descriptor.seq} ({descriptor.location}) is gone. Restore it, or quarantine it",
        code="batch_missing",
        seq=descriptor.seq,
        location=descriptor.location,
    )
