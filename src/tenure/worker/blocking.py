"""Helpers of blocking calls: refuse to block an event loop, run a coroutine that never waits, and a loop in a thread.

`docs/design/worker.md` explains which blocking caller uses which.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tenure.errors import Invalid

__all__ = ["LoopThread", "check_no_loop", "run_now", "run_on"]

T = TypeVar("T")


def check_no_loop(face: str, *, instead: str) -> None:
    """Raise Invalid where an event loop runs in this thread; ``instead`` is the call to await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Invalid(f"{face} would stop the event loop that runs here: await {instead} instead")


def run_now(work: Coroutine[Any, Any, T], *, refusal: str) -> T:
    """Return the result of a coroutine that waits for nothing. Raises Invalid with ``refusal`` where it does wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise Invalid(refusal)


def run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``work``, called and awaited on a loop that runs in another thread."""

    async def call() -> T:
        return await work()

    return asyncio.run_coroutine_threadsafe(call(), loop).result()


class LoopThread:
    """An event loop in a daemon thread of its own, for code without a loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work``, called and awaited on the loop."""
        return run_on(self._loop, work)

    def close(self) -> None:
        """Stop the loop; returns once the thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
