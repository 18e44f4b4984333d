"""The raw columns of a range, before it is decoded, for Spark and for Arrow.

``seq`` and ``index`` together are an entry's identity: the batch, and the place in it. ``ingestion_time`` and
``metadata`` are those of the produce call that it came with, and ``entry`` is the bytes as they were produced. No value
is ever null.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tenure.buffer.batch.format import Batch
from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RAW", "arrow_schema", "asked_columns", "spark_schema", "to_arrow"]

RAW = ("seq", "index", "ingestion_time", "metadata", "entry")
_ROW_BYTES = 24
"""The bytes of a row beside its values: seq, index and time."""
_ONE = pa.scalar(1, pa.int64())


def arrow_schema(columns: Sequence[str] = RAW) -> pa.Schema:
    """Return the columns as Arrow's schema; times are instants, in microseconds."""
    kinds = dict(
        zip(RAW, (pa.int64(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.binary(), pa.binary()), strict=True)
    )
    return pa.schema([pa.field(name, kinds[name]) for name in columns])


def spark_schema(*, nullable: bool = True) -> StructType:
    """Return the columns as Spark's schema; a frame that is declared not nullable costs Spark no look for nulls."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType, TimestampType

    kinds = (LongType(), LongType(), TimestampType(), BinaryType(), BinaryType())
    return StructType([StructField(name, kind, nullable) for name, kind in zip(RAW, kinds, strict=True)])


def asked_columns(schema: StructType) -> pa.Schema:
    """Return Arrow's schema for one given to a reader: some of the columns, in any order, each of its own type.

    Raises Invalid (``bad_columns``) for any other.
    """
    kinds = {field.name: field.dataType for field in spark_schema()}
    for field in schema:
        if kinds.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items())
            raise Invalid(
                f"{field.name} {field.dataType.simpleString()} is no column of a buffer: name some of {known}",
                code="bad_columns",
                column=field.name,
            )
    if not schema.names or len(set(schema.names)) < len(schema.names):
        raise Invalid("a schema names at least one column of a buffer, and each once", code="bad_columns")
    return pa.schema(
        [known.with_nullable(field.nullable) for known, field in zip(arrow_schema(schema.names), schema, strict=True)]
    )


def to_arrow(
    batch: Batch, *, schema: pa.Schema | None = None, rows_max: int = 4_000, bytes_max: int = 16 << 20
) -> Iterator[pa.RecordBatch]:
    """Yield the batch's rows in record batches of at most this many rows and bytes, one row at least.

    ``schema`` is one of ``asked_columns``; by default it has all columns. Of rows of a few hundred bytes so many fit in
    the caches of a core, from which Spark takes them one by one.

    A call's metadata is repeated on each of its rows, so it counts with every one of them, where it is asked for.
    """
    schema = arrow_schema() if schema is None else schema
    makers = _makers(batch)
    for start, end in _slices(_sizes(batch, schema.names), rows_max=rows_max, bytes_max=bytes_max):
        arrays = [makers[name](start, end - start) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _makers(batch: Batch) -> dict[str, Callable[[int, int], pa.Array]]:
    """Return for each column a function that makes it, for so many rows from a row on."""
    times = pa.array([range_.ingested_ms * 1000 for range_ in batch.ranges], pa.int64())
    instants = times.cast(pa.timestamp("us", tz="UTC"))
    entries, calls = _column(batch, "entry"), _column(batch, "range")
    metadata = _metadata(batch)
    return {
        "seq": lambda _, count: pa.repeat(pa.scalar(batch.seq, pa.int64()), count),
        "index": lambda start, count: pc.add(pc.cumulative_sum(pa.repeat(_ONE, count)), start - 1),
        "ingestion_time": lambda start, count: instants.take(calls.slice(start, count)),
        "metadata": lambda start, count: metadata.take(calls.slice(start, count)),
        "entry": entries.slice,
    }


def _sizes(batch: Batch, columns: Sequence[str]) -> pa.Array:
    """Return the bytes of each row."""
    sizes = pc.add(pc.cast(pc.binary_length(_column(batch, "entry")), pa.int64()), _ROW_BYTES)
    if "metadata" not in columns:
        return sizes
    lengths = pc.cast(pc.binary_length(_metadata(batch)), pa.int64())
    return pc.add(sizes, lengths.take(_column(batch, "range")))


def _metadata(batch: Batch) -> pa.Array:
    return pa.array([range_.metadata for range_ in batch.ranges], pa.binary())


def _column(batch: Batch, name: str) -> pa.Array:
    """Return a column of the batch's table as one array."""
    chunks = batch.table.column(name).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _slices(sizes: pa.Array, *, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield where to cut rows of these sizes."""
    sums = memoryview(pc.cumulative_sum(sizes).buffers()[1]).cast("q")[: len(sizes)]
    start = 0
    while start < len(sizes):
        before = sums[start - 1] if start else 0
        end = bisect_right(sums, before + bytes_max, lo=start, hi=min(len(sizes), start + rows_max))
        end = max(end, start + 1)
        yield start, end
        start = end
