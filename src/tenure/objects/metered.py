"""A store that counts its requests and bytes: what a bill is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from tenure.objects.store import Bytes, ObjectInfo, ObjectStore

__all__ = ["Metered", "StoreMetrics"]

_WRITES = ("put_new", "put", "copy", "list")
_READS = ("get", "head")


class StoreMetrics(msgspec.Struct):
    """Requests by kind, and what they moved, since the start of their owner."""

    requests: dict[str, int] = {}
    retries: int = 0
    objects_created: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    @property
    def writes(self) -> int:
        """Return the requests that are billed as writes: listings are, deletes are free."""
        return sum(self.requests.get(kind, 0) for kind in _WRITES)

    @property
    def reads(self) -> int:
        """Return the requests that are billed as reads."""
        return sum(self.requests.get(kind, 0) for kind in _READS)


class Metered:
    """A store that counts requests and bytes on their way to another."""

    def __init__(self, inner: ObjectStore, metrics: StoreMetrics) -> None:
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
