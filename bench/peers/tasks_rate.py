"""The rate of concurrent callers on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["tasks_rate"]


async def tasks_rate(calls: Sequence[Callable[[], Awaitable[object]]], seconds: float) -> float:
    """Return how many calls per second a task for each of them makes, one after the other."""
    end = time.perf_counter() + seconds

    async def work(call: Callable[[], Awaitable[object]]) -> int:
        count = 0
        while time.perf_counter() < end:
            await call()
            count += 1
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*map(work, calls))
    return sum(counts) / (time.perf_counter() - started)
