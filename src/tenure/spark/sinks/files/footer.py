"""The footer of a data file, read by the driver from the file's end, without its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import Corrupt
from tenure.objects.retrying import RetryingStore

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ["read_footer"]

_TAIL_BYTES: Final = 64 << 10
"""Enough for the footer of a table of some hundred columns: one request."""
_END_BYTES: Final = 8
"""A Parquet file ends with the length of its footer, in four bytes, and the four of its name."""


async def read_footer(retrying: RetryingStore, key: str, size_bytes: int) -> pq.FileMetaData:
    """Return the footer of a Parquet file of this size. Raises Corrupt (``table_file_damaged``)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail = await _tail(retrying, key, size_bytes, min(_TAIL_BYTES, size_bytes))
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if len(tail) < length <= size_bytes:
        tail = await _tail(retrying, key, size_bytes, length)
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{key} does not end like a Parquet file: {error}", code="table_file_damaged") from None


async def _tail(retrying: RetryingStore, key: str, size_bytes: int, length: int) -> bytes:
    store = retrying.store
    return await retrying.repeat(
        lambda: store.get(key, start=size_bytes - length, length=length, limit_bytes=max(1, length))
    )
