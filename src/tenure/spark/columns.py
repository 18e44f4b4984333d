"""The columns that a range has before it is decoded, as Spark and as Arrow name them.

``seq`` and ``index`` together are an entry's identity: the batch, and the place in it. ``ingestion_time`` and
``metadata`` are those of the produce call that it came with, and ``entry`` is the bytes as they were produced.
No value is ever null.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tenure.buffer.batch import Batch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RAW", "arrow_schema", "spark_schema", "to_arrow"]

RAW = ("seq", "index", "ingestion_time", "metadata", "entry")
_ROW_BYTES = 24
"""What a row takes beside its bytes: seq, index and time."""


def arrow_schema() -> pa.Schema:
    """The columns as Arrow has them; times are instants, in microseconds."""
    kinds = (pa.int64(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.binary(), pa.binary())
    return pa.schema([pa.field(name, kind) for name, kind in zip(RAW, kinds, strict=True)])


def spark_schema() -> StructType:
    """The columns as Spark has them."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

    kinds = (LongType(), LongType(), TimestampType(), BinaryType(), BinaryType())
    return StructType([StructField(name, kind) for name, kind in zip(RAW, kinds, strict=True)])


def to_arrow(batch: Batch, *, rows_max: int = 10_000, bytes_max: int = 16 << 20) -> Iterator[pa.RecordBatch]:
    """The batch's rows in record batches of at most this many rows and bytes, one row at least.

    A call's metadata is repeated on each of its rows, so it counts with every one of them.
    """
    schema = arrow_schema()
    metadata = pa.array([range_.metadata for range_ in batch.ranges], pa.binary())
    times = pa.array([range_.ingested_ms * 1000 for range_ in batch.ranges], pa.int64()).cast(schema.field(2).type)
    table = batch.table.combine_chunks()
    entries, calls = (_whole(table.column(name)) for name in ("entry", "range"))
    sizes = pc.add(pc.cast(pc.binary_length(entries), pa.int64()), _ROW_BYTES)
    sizes = pc.add(sizes, pc.cast(pc.binary_length(metadata), pa.int64()).take(calls))
    indexes = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(entries))), 1)
    for start, end in _slices(sizes, rows_max=rows_max, bytes_max=bytes_max):
        count = end - start
        part = calls.slice(start, count)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(batch.seq, pa.int64()), count),
                indexes.slice(start, count),
                times.take(part),
                metadata.take(part),
                entries.slice(start, count),
            ],
            schema=schema,
        )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column of a combined table as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _slices(sizes: pa.Array, *, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Where to cut rows of these sizes."""
    sums = memoryview(pc.cumulative_sum(sizes).buffers()[1]).cast("q")[: len(sizes)]
    start = 0
    while start < len(sizes):
        before = sums[start - 1] if start else 0
        end = bisect_right(sums, before + bytes_max, lo=start, hi=min(len(sizes), start + rows_max))
        end = max(end, start + 1)
        yield start, end
        start = end
