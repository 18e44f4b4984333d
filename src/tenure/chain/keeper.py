"""What a leader does beside its links: it says that it lives, and looks whether it still leads.

Without this, a leader that has nothing to write would serve reads for ever after another one took over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from tenure.chain.hint import HintContent, remove_hint, write_hint
from tenure.chain.leadership import Leadership, Lost
from tenure.errors import TenureError
from tenure.objects.background import background

__all__ = ["Keeper"]

logger = logging.getLogger("tenure.chain")

_REMOVE_S: Final = 1.0


class Keeper:
    """The upkeep of one leadership, on the background loop. ``on_lost`` is called from there, perhaps twice."""

    def __init__(self, leadership: Leadership, on_lost: Callable[[Lost], None]) -> None:
        self._leadership = leadership
        self._on_lost = on_lost
        self._tasks: list[Future[None]] = []
        self._hints = 0

    def start(self) -> None:
        """Begin to write hints and to look."""
        settings = self._leadership.chain.settings
        for work, every_ms in ((self._hint, settings.hint_ms), (self._prove, settings.prove_ms)):
            self._tasks.append(background().start(self._repeat(work, every_ms)))

    def stop(self) -> None:
        """End both."""
        for task in self._tasks:
            task.cancel()
        with suppress(TenureError, TimeoutError):  # a hint that stays is as good as none after a while
            background().run(self._remove_hint())

    async def _remove_hint(self) -> None:
        async with asyncio.timeout(_REMOVE_S):
            await remove_hint(self._leadership.chain.store, self._leadership.fence.nonce.hex())

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, None]], every_ms: int) -> None:
        while (lost := self._leadership.lost) is None:
            try:
                await work()
            except TenureError as error:
                if error is not self._leadership.lost:
                    logger.warning("the home does not answer: %s", error.message)
            if self._leadership.lost is None:
                await asyncio.sleep(every_ms / 1000)
        self._on_lost(lost)

    async def _hint(self) -> None:
        leadership = self._leadership
        self._hints += 1
        content = HintContent(url=leadership.fence.url, epoch=leadership.epoch, count=self._hints)
        await write_hint(leadership.chain.store, leadership.fence.nonce.hex(), content)

    async def _prove(self) -> None:
        await self._leadership.prove()
