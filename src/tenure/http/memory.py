"""Returning freed memory from the C library's heap to the operating system.

The C library keeps what was freed for the next request, and after a flood of large ones, or of connections, that is
hundreds of megabytes for good. So large blocks are always taken from the machine by themselves, which gives them back
when they are freed, and from time to time the small ones are looked through. Where the C library is another one than
GNU's, this does nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
from functools import cache
from typing import Final

__all__ = ["MemoryKeeper", "free_bytes"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 1 << 20


class _Mallinfo2(ctypes.Structure):
    """The C library's report on its heap; ``fordblks`` are the bytes that it keeps free."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


@cache
def _libc() -> ctypes.CDLL | None:
    """Return GNU's C library, from 2.33 on; None for any other."""
    libc = ctypes.CDLL(None)
    try:
        libc.mallinfo2.restype = _Mallinfo2
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except AttributeError:
        return None
    return libc


def free_bytes() -> int:
    """Return how many bytes the process keeps and does not use; 0 where the C library does not report it."""
    libc = _libc()
    return int(libc.mallinfo2().fordblks) if libc is not None else 0


class MemoryKeeper:
    """A timer that looks every ``look_ms`` whether more than ``spare_bytes_max`` are unused, and gives them back.

    Both walk the heap, so both run in a thread, without the interpreter's lock.
    """

    def __init__(self, *, look_ms: int, spare_bytes_max: int) -> None:
        self._look_s = look_ms / 1000
        self._spare_bytes_max = spare_bytes_max
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the timer."""
        libc = _libc()
        if libc is not None and self._spare_bytes_max:
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, self._spare_bytes_max)  # not after every request: its pages come back dear
            self._task = asyncio.get_running_loop().create_task(self._keep(libc))

    def stop(self) -> None:
        """Stop the timer."""
        if self._task is not None:
            self._task.cancel()

    async def _keep(self, libc: ctypes.CDLL) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await asyncio.to_thread(self._relieve, libc)

    def _relieve(self, libc: ctypes.CDLL) -> None:
        if free_bytes() > self._spare_bytes_max:
            libc.malloc_trim(0)
