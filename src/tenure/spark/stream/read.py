"""The task of the streaming source: fetch its share of the batches, one ahead, and yield them as Arrow."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor
from tenure.buffer.collecting.quarantine import Quarantined
from tenure.buffer.manifest.keys import quarantine_key
from tenure.buffer.metrics import BufferMetrics
from tenure.buffer.settings import BufferSettings
from tenure.clock import SystemClock
from tenure.errors import Corrupt
from tenure.objects.background import background
from tenure.objects.metered import Metered
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import open_store
from tenure.spark.reader.columns import to_arrow
from tenure.spark.reader.prefetch import prefetch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["record_batches"]

log = logging.getLogger(__name__)


def record_batches(
    url: str, descriptors: Sequence[Descriptor], *, schema: pa.Schema, group: str, skip_lost: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these batches, in order, with the columns of this schema.

    Raises Corrupt for a batch that is gone or damaged, unless the group has given it up: then it is left out. With
    ``skip_lost`` any such batch is left out, on the record: as ``quarantine/<seq>-<group>.json`` beside the manifest,
    and in the log.
    """
    for descriptor, fetched in prefetch(FetchHandle(url), descriptors):
        batch = _take(fetched, descriptor, url=url, group=group, skip_lost=skip_lost)
        if batch is not None:
            yield from to_arrow(batch, schema=schema)


def _take(fetched: Future[Batch], descriptor: Descriptor, *, url: str, group: str, skip_lost: bool) -> Batch | None:
    try:
        return fetched.result()
    except Corrupt as error:
        if skip_lost:
            _record_loss(url, descriptor, group=group, reason=error.message)
        elif not _is_given_up(url, descriptor.seq, group=group):
            raise Corrupt(
                f"{error.message}. To go on without this batch, on the record, use tenure buffer quarantine; without "
                "any such batch, use failOnDataLoss=false",
                code=error.code,
                **error.detail,
            ) from None
        log.warning("batch %d of group %s is skipped: %s", descriptor.seq, group, error.message)
        return None


def _is_given_up(url: str, seq: int, *, group: str) -> bool:
    return background().run(_retrying(url).exists(quarantine_key(seq, group)))


def _record_loss(url: str, descriptor: Descriptor, *, group: str, reason: str) -> None:
    """Record a batch before it is skipped; a repeated task finds the record there, and the first one stands."""
    record = Quarantined(group, reason[:4_096], SystemClock().wall_ms(), "spark", descriptor)
    background().run(_retrying(url).create(quarantine_key(descriptor.seq, group), msgspec.json.encode(record)))


def _retrying(url: str) -> RetryingStore:
    return RetryingStore(Metered(open_store(url), BufferMetrics()), BufferSettings())
