"""Collect a frame's rows on the driver, as Arrow, up to a limit: for tables that are written without a connector.

The limit is checked while rows are collected, because only then their size is known. Each task stops after the batch of
rows that passes it, the driver fetches one partition after the other and gives up as soon as the sum does: it never
holds more than the limit and one partition's share beside it, and nothing has been written by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tenure.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["BYTES_MAX", "ROWS_MAX", "to_driver"]

ROWS_MAX = 1_000_000
BYTES_MAX = 256 << 20
"""What a driver of 1 GiB holds with ease: rows in Arrow, and once more while they become Parquet."""


def to_driver(frame: DataFrame, *, rows_max: int, bytes_max: int) -> pa.Table:
    """Return the frame's rows. Raises Invalid (``too_large_for_driver``) where they exceed a limit."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    rows = size_bytes = 0
    # Arrow's own stream format in a binary column: the one way that is the same in Spark 3.5, 4 and Connect.
    for row in frame.mapInArrow(_packer(rows_max, bytes_max), "ipc binary").toLocalIterator():
        table = pa.ipc.open_stream(row["ipc"]).read_all()
        rows, size_bytes = rows + table.num_rows, size_bytes + table.nbytes
        if rows > rows_max or size_bytes > bytes_max:
            raise Invalid(
                f"the rows are more than {rows_max:,}, or have more than {bytes_max:,} bytes: raise rows_max or "
                "bytes_max of the sink where the driver has the memory, or use the connector for Spark, which does not "
                "pull rows through the driver",
                code="too_large_for_driver",
                rows_max=rows_max,
                bytes_max=bytes_max,
            )
        tables.append(table)
    schema = _storable(tables[0].schema if tables else _schema_of(frame))
    return pa.concat_tables(tables).cast(schema) if tables else schema.empty_table()


def _schema_of(frame: DataFrame) -> pa.Schema:
    """Return the schema of a frame without rows, which sends no batch to learn it from."""
    if hasattr(frame, "toArrow"):
        return frame.limit(0).toArrow().schema
    from pyspark.sql.pandas.types import to_arrow_schema  # all that Spark 3.5 has; later ones want more of it

    return to_arrow_schema(frame.schema)


def _packer(rows_max: int, bytes_max: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task, defined here so that it travels by value: executors need Arrow, not Tenure."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = size_bytes = 0
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([packed], ["ipc"])
            rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
            if rows > rows_max or size_bytes > bytes_max:
                return

    return pack


def _storable(schema: pa.Schema) -> pa.Schema:
    """Return the schema for a table: moments in UTC, and every column nullable.

    Spark labels moments with the session's zone. That one range has no null in a column does not hold for the next.
    """
    import pyarrow as pa

    return pa.schema([_storable_field(field) for field in schema])


def _storable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storable_type(field.type)).with_nullable(True)


def _storable_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([_storable_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_storable_type(kind.key_type), _storable_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_storable_field(kind.value_field))
    return kind
