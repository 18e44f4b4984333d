"""Prefetch batches: the next one is fetched while Spark takes the rows of the one before. A task holds two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Batch, Descriptor

__all__ = ["prefetch"]


def prefetch(handle: FetchHandle, descriptors: Sequence[Descriptor]) -> Iterator[tuple[Descriptor, Future[Batch]]]:
    """Yield each batch in order, as a future: a bad batch raises in its result, and the rest go on."""
    before: tuple[Descriptor, Future[Batch]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="tenure-ahead") as pool:
        for descriptor in descriptors:
            fetching = pool.submit(handle.fetch_blocking, descriptor)
            if before is not None:
                yield before
            before = descriptor, fetching
        if before is not None:
            yield before
