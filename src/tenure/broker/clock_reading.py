"""Read the two clocks of a machine at one moment."""

from __future__ import annotations

from typing import Final

from tenure.clock import Clock

__all__ = ["read_both"]

_READS_MAX: Final = 5


def read_both(clock: Clock) -> tuple[int, int]:
    """Return the boot and the wall time of one moment.

    A process that is stopped between the two reads would take the pause for a step of the wall clock: it reads again.
    """
    boot_ms, wall_ms = clock.boot_ms(), clock.wall_ms()
    for _ in range(_READS_MAX):
        if clock.boot_ms() - boot_ms <= 1:
            break
        boot_ms, wall_ms = clock.boot_ms(), clock.wall_ms()
    return boot_ms, wall_ms
