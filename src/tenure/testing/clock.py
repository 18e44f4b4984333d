"""`ManualClock`: a clock that moves only when a test moves it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["ManualClock"]


class ManualClock:
    """Wall and boot time as numbers that a test sets. Moving them wakes the waiters of a broker.

    >>> from tenure.testing import ManualClock
    >>> clock = ManualClock(wall_ms=1_000)
    >>> clock.advance(500)
    >>> clock.wall_ms()
    1500
    """

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, boot_ms: int = 1_000, boot_id: str = "boot-1") -> None:
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._boot_id = boot_id
        self._subscribers: list[Callable[[], None]] = []

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def boot_ms(self) -> int:
        return self._boot_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def subscribe(self, moved: Callable[[], None]) -> None:
        self._subscribers.append(moved)

    def advance(self, ms: int) -> None:
        """Let time pass, on the wall clock and since boot."""
        self._boot_ms += ms
        self._wall_ms += ms
        self._wake_subscribers()

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does; time since boot is unchanged."""
        self._wall_ms += ms
        self._wake_subscribers()

    def reboot(self, *, off_ms: int = 0) -> None:
        """Restart the machine: time since boot begins at 0, the wall clock goes on."""
        self._boot_id = f"{self._boot_id}+"
        self._boot_ms = 0
        self._wall_ms += off_ms

    def _wake_subscribers(self) -> None:
        for moved in list(self._subscribers):
            moved()
