"""`Timing`: the clock and the sleep of the runtime, injected so that a test can control them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

__all__ = ["SystemTiming", "Timing", "end", "unless", "within"]

T = TypeVar("T")

_CANCEL_AGAIN_S: Final = 0.5


class Timing(Protocol):
    """The clock and the sleep that the runtime uses."""

    def now_ms(self) -> int:
        """Return milliseconds that never go back, for durations."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch, for cron."""
        ...

    async def sleep_ms(self, ms: float) -> None:
        """Return once ``ms`` have passed."""
        ...


class SystemTiming:
    """The time of this machine. Suspension counts: a lease does not wait for a laptop to wake up."""

    def now_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and return once it has ended. It is cancelled repeatedly: before Python 3.12 a library's
    ``wait_for`` may swallow a cancellation that arrives together with its result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_CANCEL_AGAIN_S)


async def within(timing: Timing, ms: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; after ``ms``, cancel it and raise TimeoutError."""
    task = asyncio.ensure_future(work)
    sleeper = asyncio.ensure_future(timing.sleep_ms(ms))
    try:
        await asyncio.wait((task, sleeper), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError(f"no answer within {ms:.0f} ms")
        return await task
    finally:
        sleeper.cancel()
        task.cancel()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Run ``work`` until ``event`` is set; return True where it finished. Raises what it raises."""
    task = asyncio.ensure_future(work)
    cut = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, cut), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return False
        await task
        return True
    finally:
        cut.cancel()
        if task.cancel():
            await asyncio.wait((task,))
