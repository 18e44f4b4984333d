"""The oldest batches of a listing, kept from one collector's pass to the next.

A directory cannot be listed from its first name without reading all of it, and a consumer that drains a backlog has it
collected every hundred batches: with a listing each that would be quadratic. Batches are written once and names rise,
so what was listed stays true until it is deleted; what it misses, an upload under an older name, waits for the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

from tenure.buffer.manifest.keys import BATCH
from tenure.buffer.store.interface import ObjectInfo
from tenure.buffer.store.retrying import RetryingStore

__all__ = ["Backlog"]

_LISTED_MS_MAX = 600_000
"""A listing that is older is made again."""


class Backlog:
    """Up to ``objects_max`` of the oldest objects below ``data/``, in order of name."""

    def __init__(self, patient: RetryingStore, *, objects_max: int) -> None:
        self._patient = patient
        self._objects_max = objects_max
        self._batches: deque[ObjectInfo] = deque()
        self._listed_ms = 0
        self.foreign: list[str] = []
        """Files that are not the buffer's."""

    @property
    def is_blocked(self) -> bool:
        """Whether a listing ended at too many files that are not the buffer's."""
        return len(self.foreign) > self._objects_max

    async def oldest(self, now_ms: int) -> AsyncIterator[ObjectInfo]:
        """The batches that were listed and not dropped, oldest first; then those behind them, if wanted."""
        if now_ms - self._listed_ms > _LISTED_MS_MAX:
            self._batches.clear()
        for info in list(self._batches):
            yield info
        for info in await self._list_on(now_ms):
            yield info

    def drop(self, count: int) -> None:
        """Forget the first ``count``: they are deleted."""
        for _ in range(count):
            self._batches.popleft()

    async def _list_on(self, now_ms: int) -> list[ObjectInfo]:
        """List behind the last batch that is kept, or from the beginning where there is none."""
        if not self._batches:
            self._listed_ms, self.foreign = now_ms, []
        last, found = self._batches[-1].key if self._batches else None, list[ObjectInfo]()
        async with aclosing(self._patient.listed("data/", last)) as listed:
            async for info in listed:
                if BATCH.fullmatch(info.key):
                    found.append(info)
                else:
                    self.foreign.append(info.key)
                if len(self._batches) + len(found) > self._objects_max or self.is_blocked:
                    break
        self._batches += found
        return found
