"""Rows of a Parquet file as entries: each a JSON object with a field per column.

A row group is read a few thousand rows at a time, so memory follows the rows and not the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.cli.buffer.importing.part import ENTRY_BYTES_MAX, bad_input, too_large

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parquet_rows"]

_ROWS_MAX: Final = 10_000
_BATCH_BYTES: Final = 4 << 20
_READ_BYTES: Final = 1 << 20


def parquet_rows(path: Path) -> Iterator[bytes]:
    """Yield rows as JSON objects. Raises Invalid (``bad_input``), with the row, for what JSON cannot hold or the file
    does not give; ModuleNotFoundError without pyarrow.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    encode = msgspec.json.Encoder(decimal_format="number").encode
    row = 0
    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_READ_BYTES, page_checksum_verification=True) as file:
            doubled = next((each for each in file.schema_arrow.names if file.schema_arrow.names.count(each) > 1), None)
            if doubled is not None:
                raise bad_input(str(path), f"has two columns named {doubled}: rename one")
            for batch in file.iter_batches(batch_size=_rows_at_once(file.metadata), use_threads=False):
                for values in _plain(batch).to_pylist(maps_as_pydicts="strict"):
                    entry = encode(_finite(values))
                    row += 1
                    if len(entry) > ENTRY_BYTES_MAX:
                        raise too_large(f"{path}: row {row}")
                    yield entry
    except (pa.ArrowException, ValueError, OverflowError, TypeError, KeyError) as error:
        raise bad_input(f"{path}: after row {row}", f"cannot be read as JSON: {error}") from error


def _rows_at_once(metadata: Any) -> int:
    row_bytes: int = sum(metadata.row_group(each).total_byte_size for each in range(metadata.num_row_groups))
    rows: int = metadata.num_rows
    return max(1, min(_ROWS_MAX, _BATCH_BYTES * rows // max(1, row_bytes)))


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with times in microseconds, as Python has no finer ones; finer texts where that would cut."""
    import pyarrow as pa

    for place, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            column = batch.column(place)
            try:
                exact = column.cast(pa.timestamp("us", field.type.tz))
            except pa.ArrowInvalid:
                exact = _iso(column, zoned=field.type.tz is not None)
            batch = batch.set_column(place, field.name, exact)
    return batch


def _iso(column: pa.Array, *, zoned: bool) -> pa.Array:
    """Return the times as ISO 8601, in UTC where they have a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.replace_substring(column.cast(pa.timestamp("ns")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts


def _finite(value: Any) -> Any:
    """Return the value with NaN and the infinities as texts, as JSON has none and null would lose them."""
    if type(value) is float:
        return value if value - value == 0 else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    if type(value) is dict:
        return {name: _finite(each) for name, each in value.items()}
    if type(value) is list:
        return [_finite(each) for each in value]
    return value
