"""A broker in memory on a clock of the test's own, for users' tests: the same engine, no files, no waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure.broker.broker import Broker
from tenure.clock import Clock
from tenure.settings import Settings
from tenure.testing.clock import ManualClock

__all__ = ["memory_broker"]


@asynccontextmanager
async def memory_broker(clock: Clock | None = None, settings: Settings | None = None) -> AsyncIterator[Broker]:
    """Give an open broker that keeps everything in memory, and close it at the end.

    Give a `ManualClock` to let time pass by hand; without one, time stands still. A lease then expires because the
    test says so, and never because the machine was slow:

    >>> import asyncio
    >>> from tenure.testing import ManualClock, memory_broker
    >>> async def expired_work_comes_back() -> int:
    ...     clock = ManualClock()
    ...     async with memory_broker(clock) as broker:
    ...         await broker.put_topic("mail", {"type": "queue", "lease_ms": 30_000})
    ...         await broker.produce("mail", [b'"hello"'])
    ...         first = await broker.claim("mail", node="worker-1")
    ...         clock.advance(30_001)
    ...         again = await broker.claim("mail", node="worker-2")
    ...         return again.deliveries(first.seqs[0])
    >>> asyncio.run(expired_work_comes_back())
    2
    """
    broker = await Broker.open(None, clock=clock or ManualClock(), settings=settings)
    async with broker:
        yield broker
