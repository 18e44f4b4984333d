"""The clock of a simulated machine: it runs with the world's time, but for what befell it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["MachineClock"]

_WALL_MS = 1_700_000_000_000


class MachineClock:
    """A clock that may have stood still, gone back, or been set."""

    boot_id = "boot"

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.boot_behind_ms = 0
        self.wall_behind_ms = 0

    def boot_ms(self) -> int:
        return self._now_ms() - self.boot_behind_ms

    def wall_ms(self) -> int:
        return _WALL_MS + self._now_ms() - self.wall_behind_ms

    def subscribe(self, moved: Callable[[], None]) -> None:
        """Do nothing: a loop that goes by virtual time wakes by itself."""
