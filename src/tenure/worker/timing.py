"""Time as the runtime sees it: an argument, so that a test can hold it in its hand."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

__all__ = ["SystemTiming", "Timing"]


class Timing(Protocol):
    """What the runtime asks about time."""

    def now_ms(self) -> int:
        """Milliseconds that never go back, for durations."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for cron."""
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
