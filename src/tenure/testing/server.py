"""`memory_broker`: a broker in memory; `running_server`: a whole server on a free port, for code that needs a URL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tenure.broker.broker import Broker
from tenure.clock import Clock
from tenure.http.service import Service
from tenure.http.settings import ServerSettings
from tenure.settings import Settings
from tenure.testing.clock import ManualClock

__all__ = ["memory_broker", "running_server"]


@asynccontextmanager
async def memory_broker(clock: Clock | None = None, settings: Settings | None = None) -> AsyncIterator[Broker]:
    """Yield an open broker that keeps everything in memory, and close it at the end.

    Pass a `ManualClock` to let time pass; without one, time stands still. A lease then expires when the test advances
    the clock, and never because the machine was slow:

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


@contextmanager
def running_server(data: Path) -> Iterator[str]:
    """Serve a data directory on loopback within the block; yields the URL.

    It runs on a loop in a thread, without keys, and stops with the block.
    """
    ready: Future[str] = Future()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(data, ready, stop)), name="tenure-server")
    thread.start()
    try:
        yield ready.result()
    finally:
        for loop, event in stop:
            loop.call_soon_threadsafe(event.set)
        thread.join()


async def _serve(data: Path, ready: Future[str], stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    event = asyncio.Event()
    stop.append((asyncio.get_running_loop(), event))
    try:
        service = Service(ServerSettings(data=str(data), port=0), environment={})
        await service.start()
        await service.open()
    except BaseException as error:
        ready.set_exception(error)
        return
    ready.set_result(service.address)
    await event.wait()
    await service.stop()
