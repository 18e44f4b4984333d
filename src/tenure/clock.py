"""Time enters the engine here, as numbers, and nowhere else.

The core works in *log time*: milliseconds that never go back. A clock only reports what the machine
says; turning that into log time across restarts is the broker's work (see ``Engine.now``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

__all__ = ["Clock", "OffsetClock", "SystemClock"]


class Clock(Protocol):
    """What the machine knows about time."""

    @property
    def boot_id(self) -> str:
        """Changes with every boot of the machine; ``boot_ms`` is comparable only within one."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since boot, counting suspension, never going back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch by the wall clock, which may jump either way."""
        ...

    def subscribe(self, moved: Callable[[], None]) -> None:
        """Call ``moved`` whenever this clock is moved by hand; a clock that only runs never does."""
        ...


class SystemClock:
    """The clock of this machine.

    >>> from tenure.clock import SystemClock
    >>> clock = SystemClock()
    >>> before_ms = clock.boot_ms()
    >>> clock.boot_ms() >= before_ms
    True
    """

    def __init__(self) -> None:
        try:
            self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:  # without a boot id every opening counts as a new boot
            self._boot_id = f"unknown-{time.time_ns()}"

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def subscribe(self, moved: Callable[[], None]) -> None:
        """This clock is never moved by hand."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class OffsetClock:
    """A clock that runs as another one does, ahead of it by an offset that only grows.

    For tests of a whole server from outside: an hour passes in one call, on the wall and since boot alike, and whatever
    waits for time is woken.

    >>> from tenure.clock import OffsetClock
    >>> from tenure.testing import ManualClock
    >>> clock = OffsetClock(ManualClock(wall_ms=1_000))
    >>> clock.advance(500)
    >>> clock.wall_ms()
    1500
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base = base if base is not None else SystemClock()
        self._moved: list[Callable[[], None]] = []
        self.offset_ms = 0

    @property
    def boot_id(self) -> str:
        return self._base.boot_id

    def boot_ms(self) -> int:
        return self._base.boot_ms() + self.offset_ms

    def wall_ms(self) -> int:
        return self._base.wall_ms() + self.offset_ms

    def subscribe(self, moved: Callable[[], None]) -> None:
        self._moved.append(moved)
        self._base.subscribe(moved)

    def advance(self, ms: int) -> None:
        """Let ``ms`` pass at once; log time never goes back, so neither does this."""
        if ms < 0:
            raise ValueError("time passes forward only")
        self.offset_ms += ms
        for moved in list(self._moved):
            moved()
