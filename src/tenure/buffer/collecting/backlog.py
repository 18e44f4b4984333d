"""The backlog of a collector: a listing of the oldest batches that serves many passes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

from tenure.buffer.manifest.keys import BATCH
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo, ObjectMissing

__all__ = ["Backlog"]

_LISTED_MS_MAX = 600_000
"""The age after which a listing is made again."""


class Backlog:
    """Up to ``objects_max`` of the oldest objects below ``data/``, in order of name, and when each was stored."""

    def __init__(self, retrying: RetryingStore, *, objects_max: int) -> None:
        self._retrying = retrying
        self._objects_max = objects_max
        self._batches: deque[ObjectInfo] = deque()
        self._stored_ms: dict[str, int] = {}
        self._listed_ms = 0
        self._listed_on_ms = -1
        self.foreign: list[str] = []
        """Files that are not the buffer's."""

    @property
    def is_blocked(self) -> bool:
        """Return whether a listing ended at too many files that are not the buffer's."""
        return len(self.foreign) > self._objects_max

    async def oldest(self, now_ms: int) -> AsyncIterator[ObjectInfo]:
        """Yield the batches that were listed and not dropped, oldest first; then list further ones, if wanted."""
        self._forget_if_old(now_ms)
        for info in list(self._batches):
            yield info
        for info in await self._list_on(now_ms):
            yield info

    async def stored_ms(self, key: str, now_ms: int) -> int | None:
        """Return when a batch was stored, by the store's clock: from the listing, or asked for once; None if gone."""
        self._forget_if_old(now_ms)
        if self._may_list(key, now_ms):
            await self._list_on(now_ms)
        if key not in self._stored_ms:
            try:
                self._stored_ms[key] = (await self._retrying.head(key)).modified_ms
            except ObjectMissing:
                return None
        return self._stored_ms[key]

    def _may_list(self, key: str, now_ms: int) -> bool:
        """Return whether a key may be in what is listed next, which is listed once at one time at most."""
        is_beyond = not self._batches or key > self._batches[-1].key
        return is_beyond and len(self._batches) <= self._objects_max and self._listed_on_ms < now_ms

    def drop(self, count: int) -> None:
        """Remove the first ``count``: they are deleted."""
        for _ in range(count):
            self._stored_ms.pop(self._batches.popleft().key, None)

    def _forget_if_old(self, now_ms: int) -> None:
        if now_ms - self._listed_ms > _LISTED_MS_MAX:
            self._batches.clear()
            self._stored_ms.clear()

    async def _list_on(self, now_ms: int) -> list[ObjectInfo]:
        """List after the last batch that is kept, or from the beginning where there is none."""
        self._listed_on_ms = now_ms
        if not self._batches:
            self._listed_ms, self.foreign = now_ms, []
        last, found = self._batches[-1].key if self._batches else None, list[ObjectInfo]()
        async with aclosing(self._retrying.list_objects("data/", last)) as listed:
            async for info in listed:
                if BATCH.fullmatch(info.key):
                    found.append(info)
                else:
                    self.foreign.append(info.key)
                if len(self._batches) + len(found) > self._objects_max or self.is_blocked:
                    break
        self._batches += found
        self._stored_ms |= {info.key: info.modified_ms for info in found}
        return found
