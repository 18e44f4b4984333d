"""A wall clock that somebody else moves: its shift is one number in a file that server and nemesis share.

Only the wall jumps, as it does when an operator or NTP sets it; the time since boot goes on, and leases follow that.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from tenure.clock import SystemClock

__all__ = ["ShiftedClock", "set_shift"]

_SHIFT = struct.Struct("<q")


class ShiftedClock(SystemClock):
    """The clock of this machine, with the shift of a file added to its wall."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with path.open("rb") as file:
            self._shift = mmap.mmap(file.fileno(), _SHIFT.size, access=mmap.ACCESS_READ)

    def wall_ms(self) -> int:
        shift_ms: int = _SHIFT.unpack_from(self._shift)[0]
        return super().wall_ms() + shift_ms


def set_shift(path: Path, shift_ms: int) -> None:
    """Move every clock on this file; the first call makes the file."""
    path.touch()
    with path.open("r+b") as file:
        file.write(_SHIFT.pack(shift_ms))
