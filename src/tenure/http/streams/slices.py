"""Writing to many readers in slices, so that everything else on the loop gets its turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Final, TypeVar

__all__ = ["Slices"]

T = TypeVar("T")
_SLICE_S: Final = 0.002
_SIZE_MIN: Final = 1
_SIZE_MAX: Final = 512


class Slices:
    """How many readers are served in one turn of the loop: half as many after a turn that took too long, else twice.

    A loop may do the writes of a turn at its end, so the time of a slice is measured up to the next one. It is time of
    the processor: on a busy machine smaller slices would only make more turns.
    """

    __slots__ = ("_now_s", "size")

    def __init__(self, *, now_s: Callable[[], float] = thread_time) -> None:
        self._now_s = now_s
        self.size = 64

    async def each(self, items: Sequence[T], step: Callable[[T], None]) -> None:
        """Call ``step`` with every item."""
        at = 0
        while at < len(items):
            started_s, size = self._now_s(), self.size
            for item in items[at : at + size]:
                step(item)
            at += size
            await asyncio.sleep(0)
            is_long = self._now_s() - started_s > _SLICE_S
            self.size = max(size // 2, _SIZE_MIN) if is_long else min(size * 2, _SIZE_MAX)
