"""Fetch a batch by its descriptor: from any task, thread or process, without the consumer that handed it out."""

from __future__ import annotations

import asyncio

from tenure.buffer.batch.format import Batch, Descriptor, decode_batch, gone
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.errors import Corrupt
from tenure.objects.background import background
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectMissing, ObjectStore

__all__ = ["FetchHandle"]


class FetchHandle:
    """A fetcher and decoder of batches; it touches no cursor, keeps nothing, and pickles as the store's URL."""

    def __init__(
        self,
        store: ObjectStore | str,
        *,
        settings: BufferSettings | None = None,
        metrics: BufferMetrics | None = None,
    ) -> None:
        self._settings = settings if settings is not None else BufferSettings()
        self._store = self._settings.store_at(store) if isinstance(store, str) else store
        self.metrics = metrics if metrics is not None else BufferMetrics()

    def __reduce__(self) -> tuple[type[FetchHandle], tuple[ObjectStore], dict[str, BufferSettings]]:
        return FetchHandle, (self._store,), {"_settings": self._settings}

    async def fetch(self, descriptor: Descriptor) -> Batch:
        """Return the batch. Raises Corrupt if it is gone or damaged, OutcomeUnknown if the store does not answer."""
        settings = self._settings
        if descriptor.bytes > settings.batch_bytes_max:
            raise Corrupt(
                f"batch {descriptor.seq} has {descriptor.bytes:,} bytes, more than batch_bytes_max",
                code="batch_too_large",
                seq=descriptor.seq,
            )
        retrying = RetryingStore(Metered(self._store, self.metrics), settings)
        try:
            data = await retrying.get(descriptor.location, settings.batch_bytes_max)
        except ObjectMissing:
            raise gone(descriptor) from None
        batch = await asyncio.to_thread(decode_batch, data, descriptor, settings)
        self.metrics.batches_fetched += 1
        self.metrics.entries_fetched += descriptor.entries
        self.metrics.bytes_fetched += descriptor.bytes
        return batch

    def fetch_blocking(self, descriptor: Descriptor) -> Batch:
        """Fetch as ``fetch`` does, for threads without a loop."""
        return background().run(self.fetch(descriptor))
