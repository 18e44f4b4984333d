"""Turns of the event loop, taken on behalf of a caller that never yields.

A call that finds room returns without suspending, so a caller that computes between its calls withholds the loop: no
timer fires, nothing is uploaded, and what it produced is durable only once it happens to wait for something. A turn
alone would not do while a batch is under way: it takes some twenty of them, and threads that need the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.clock import Clock

__all__ = ["Turns"]

_WITHHELD_MS = 1
"""A loop that was withheld for this long gets a turn."""
_SHARE = 5
"""While something is under way, the loop gets this fraction of the time that it was withheld for."""
_SHARE_MS_MAX = 20


class Turns:
    """Knows for how long the loop has not run since the last ``note``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None
        self._withheld_ms = 0

    def note(self) -> None:
        """Note that there is work for the loop; the loop clears the note with its next turn."""
        if self._since_ms is None:
            self._since_ms = self._clock.boot_ms()
            asyncio.get_running_loop().call_soon(self._ran)

    async def take(self, under_way: Callable[[], asyncio.Future[int] | None]) -> None:
        """Let the loop run if it was withheld; end early once what is under way is done."""
        if self._since_ms is None or (withheld_ms := self._clock.boot_ms() - self._since_ms) < _WITHHELD_MS:
            return
        self._withheld_ms += withheld_ms
        await asyncio.sleep(0)  # a timer that is due puts something under way
        waiting = under_way()
        if waiting is not None and self._withheld_ms >= _SHARE:
            share_ms, self._withheld_ms = min(self._withheld_ms // _SHARE, _SHARE_MS_MAX), 0
            await asyncio.wait([waiting], timeout=share_ms / 1000)

    def _ran(self) -> None:
        self._since_ms = None
