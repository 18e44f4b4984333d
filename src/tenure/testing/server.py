"""A whole server for a test, on a free port of this process: for code that can only be given an address."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from tenure.http.service import Service
from tenure.http.settings import ServerSettings

__all__ = ["running_server"]


@contextmanager
def running_server(data: Path) -> Iterator[str]:
    """Serve a data directory on loopback for as long as the block runs; yields the URL.

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
