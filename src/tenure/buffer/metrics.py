"""The buffer's metrics: plain counters, and a store that counts its requests and bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from tenure.buffer.store.interface import Bytes, ObjectInfo, ObjectStore

__all__ = ["BufferMetrics", "Metered"]


class BufferMetrics(msgspec.Struct):
    """Counters since the start of one producer, consumer or collector. ``snapshot`` adds figures derived from them."""

    started_ms: int = 0
    # Producing
    calls: int = 0
    entries: int = 0
    entry_bytes: int = 0
    batches: int = 0
    batch_bytes: int = 0
    batches_failed: int = 0
    reuploads: int = 0
    flush_ms_total: float = 0.0
    unflushed_since_ms: int = 0
    inflight_bytes: int = 0
    # The manifest
    commits: int = 0
    commit_ms_total: float = 0.0
    commit_ms_max: float = 0.0
    conflicts: int = 0
    deltas_read: int = 0
    checkpoints: int = 0
    runs: int = 0
    upkeep_failures: int = 0
    damaged_checkpoints: int = 0
    # Consuming
    batches_fetched: int = 0
    entries_fetched: int = 0
    bytes_fetched: int = 0
    acks: int = 0
    quarantined: int = 0
    frontier: int = -1
    lag_batches: int = 0
    lag_ms: int = 0
    # Collecting
    collected_objects: int = 0
    collected_bytes: int = 0
    collector_failures: int = 0
    freed_deltas: int = 0
    # The store
    requests: dict[str, int] = {}
    retries: int = 0
    objects_created: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def snapshot(self, now_ms: int) -> dict[str, Any]:
        """Return everything as plain values, with requests per GB, objects per hour and the oldest unflushed age."""
        requests = sum(self.requests.values())
        moved = max(self.entry_bytes, self.bytes_fetched)
        hours = max(now_ms - self.started_ms, 1) / 3_600_000
        return {
            **msgspec.structs.asdict(self),
            "requests": dict(self.requests),
            "requests_total": requests,
            "requests_per_gb": requests / (moved / 1e9) if moved else 0.0,
            "objects_per_hour": self.objects_created / hours,
            "compression": self.batch_bytes / self.entry_bytes if self.entry_bytes else 0.0,
            "flush_ms": self.flush_ms_total / self.batches if self.batches else 0.0,
            "commit_ms": self.commit_ms_total / self.commits if self.commits else 0.0,
            "oldest_unflushed_ms": max(0, now_ms - self.unflushed_since_ms) if self.unflushed_since_ms else 0,
        }


class Metered:
    """A store that counts requests and bytes on their way to another."""

    def __init__(self, inner: ObjectStore, metrics: BufferMetrics) -> None:
        self.inner = inner
        self.metrics = metrics

    @property
    def url(self) -> str:
        return self.inner.url

    async def put_new(self, key: str, data: Bytes) -> None:
        self._count_sent("put_new", data)
        await self.inner.put_new(key, data)
        self.metrics.objects_created += 1

    async def put(self, key: str, data: Bytes) -> None:
        self._count_sent("put", data)
        await self.inner.put(key, data)
        self.metrics.objects_created += 1

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        self._count("get")
        data = await self.inner.get(key, start=start, length=length, limit_bytes=limit_bytes)
        self.metrics.bytes_received += len(data)
        return data

    async def head(self, key: str) -> ObjectInfo:
        self._count("head")
        return await self.inner.head(key)

    async def list(self, prefix: str, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        listed = 0
        async for info in self.inner.list(prefix, start_after):
            if listed % 1_000 == 0:  # a page of the usual stores
                self._count("list")
            listed += 1
            yield info
        if listed == 0:
            self._count("list")

    async def copy(self, source: str, target: str) -> None:
        self._count("copy")
        await self.inner.copy(source, target)
        self.metrics.objects_created += 1

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._count("delete", (len(keys) + 999) // 1_000)
            await self.inner.delete(keys)

    async def now_ms(self) -> int:
        self._count("put")
        self._count("head")
        return await self.inner.now_ms()

    def _count_sent(self, kind: str, data: Bytes) -> None:
        self._count(kind)
        self.metrics.bytes_sent += len(data)

    def _count(self, kind: str, times: int = 1) -> None:
        self.metrics.requests[kind] = self.metrics.requests.get(kind, 0) + times
