"""A store in memory whose creates take as long as a far one's: lognormal, and so many bytes a second."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from random import Random
from time import perf_counter

from tenure.objects.store import Bytes, ObjectExists, ObjectInfo, ObjectMissing
from tenure.testing.simstore import SimStore

__all__ = ["SlowStore", "quantile"]

_SIGMA = 0.35
"""The spread: p99 is 2.3 times p50."""
_BYTES_PER_S = 100e6
_KEPT_MAX = 64


class SlowStore(SimStore):
    """Creates sleep for ``put_ms`` at p50; all else is at once. Only the last links keep their bytes."""

    def __init__(self, put_ms: float) -> None:
        super().__init__()
        self.put_ms = put_ms
        self.took_ms: list[float] = []
        self.is_slow = False
        self._dice = Random(1)
        self._links: dict[str, bytes] = {}

    async def put_new(self, key: str, data: Bytes) -> None:
        if not self.is_slow:
            await super().put_new(key, data)
            return
        started = perf_counter()
        sleep_ms = self.put_ms * math.exp(self._dice.gauss(0, _SIGMA))
        await asyncio.sleep(sleep_ms / 1000 + len(data) / _BYTES_PER_S)
        if key in self._links:
            raise ObjectExists(f"{key} is taken", key=key)
        self._links[key] = bytes(data)
        if len(self._links) > _KEPT_MAX:
            self._links.pop(next(iter(self._links)))
        self.took_ms.append((perf_counter() - started) * 1000)

    async def put(self, key: str, data: Bytes) -> None:
        self._links[key] = bytes(data)

    async def get(self, key: str, *, start: int = 0, length: int | None = None, limit_bytes: int) -> bytes:
        if key in self._links:
            return self._links[key]
        return await super().get(key, start=start, length=length, limit_bytes=limit_bytes)

    async def head(self, key: str) -> ObjectInfo:
        if key in self._links:
            return ObjectInfo(key, len(self._links[key]), 0)
        if self.is_slow:
            raise ObjectMissing(f"{key} is not there", key=key)
        return await super().head(key)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._links.pop(key, None)
        await super().delete(keys)


def quantile(values: list[float], share: float) -> float:
    """Return the value below which that share lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
