"""The footers of a range's batches, read by the driver: one small request per batch, many at a time.

Only the footers hold the times and the metadata of the produce calls. Reading them also shows, before any task starts,
that each batch is there, ends where it should and is the one in the manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tenure.buffer.batch.format import Descriptor, Range, footer_ranges, gone, unusable
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import FOOTER_BYTES_MAX
from tenure.errors import Corrupt, Invalid
from tenure.objects.background import background
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectMissing, ObjectStore, open_store
from tenure.spark.reader.settings import ReaderSettings

__all__ = ["read_footers"]

_MAGIC = b"PAR1"
_END_BYTES = 8
"""A Parquet file ends with the length of its footer, in four bytes, and the four of its name."""
_SLACK_BYTES = 1 << 20
"""The bytes of a footer beside its calls."""


def read_footers(
    url: str | ObjectStore, descriptors: Sequence[Descriptor], *, settings: ReaderSettings | None = None
) -> list[list[Range]]:
    """Return the produce calls of each batch, in order.

    Raises Corrupt for a batch that is gone or is not what its descriptor says, Invalid (``calls_too_large``) where the
    footers together exceed ``calls_bytes_max``: read fewer batches at a time, or let Python read them.
    """
    store = open_store(url) if isinstance(url, str) else url
    return background().run(_Footers(store, settings or ReaderSettings()).read(descriptors))


class _Footers:
    def __init__(self, store: ObjectStore, settings: ReaderSettings) -> None:
        self._retrying = RetryingStore(Metered(store, BufferMetrics()), settings.buffer)
        self._settings = settings
        self._bytes = 0

    async def read(self, descriptors: Sequence[Descriptor]) -> list[list[Range]]:
        gate = asyncio.Semaphore(self._settings.footers_max)

        async def one(descriptor: Descriptor) -> list[Range]:
            async with gate:
                return self._parse(await self._footer(descriptor), descriptor)

        reads = [asyncio.create_task(one(descriptor)) for descriptor in descriptors]
        try:
            return await asyncio.gather(*reads)
        finally:  # after a failure the other reads serve no one
            for read in reads:
                read.cancel()

    async def _footer(self, descriptor: Descriptor) -> bytes:
        """Return the file's last bytes, which contain the whole footer."""
        tail = await self._tail(descriptor, min(self._settings.tail_bytes, descriptor.bytes))
        if tail[-4:] != _MAGIC or len(tail) < _END_BYTES:
            raise unusable(descriptor, "batch_damaged", "it does not end like a Parquet file")
        size = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
        if size > min(descriptor.bytes, FOOTER_BYTES_MAX + _SLACK_BYTES):
            raise unusable(descriptor, "batch_damaged", f"its footer claims {size:,} bytes")
        self._bytes += size
        if self._bytes > self._settings.calls_bytes_max:
            raise Invalid(
                f"the produce calls of this range take more than {self._settings.calls_bytes_max:,} bytes: "
                "plan shorter ranges, or read with reader='python'",
                code="calls_too_large",
                limit=self._settings.calls_bytes_max,
            )
        return tail if size <= len(tail) else await self._tail(descriptor, size)

    async def _tail(self, descriptor: Descriptor, length: int) -> bytes:
        start, store = descriptor.bytes - length, self._retrying.store
        try:
            tail = await self._retrying.repeat(
                lambda: store.get(descriptor.location, start=start, length=length, limit_bytes=length)
            )
        except ObjectMissing:
            raise gone(descriptor) from None
        if len(tail) != length:
            raise unusable(descriptor, "batch_truncated", f"it ends before its {descriptor.bytes:,} bytes")
        return tail

    def _parse(self, tail: bytes, descriptor: Descriptor) -> list[Range]:
        try:
            file = pq.ParquetFile(pa.BufferReader(tail))
            ranges = footer_ranges(file, descriptor)
        except Corrupt:
            raise
        except (pa.ArrowException, OSError) as error:
            raise unusable(descriptor, "batch_damaged", f"its footer cannot be read: {error}") from None
        groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
        if (size := sum(group.total_byte_size for group in groups)) > self._settings.buffer.decoded_bytes_max:
            raise unusable(descriptor, "batch_too_large", f"it has {size:,} bytes once decoded")
        return ranges
