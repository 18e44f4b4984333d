"""What a leader does beside its links: it looks whether it still leads.

Without this, a leader that has nothing to write would serve reads for ever after another one took over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future

from tenure.chain.leadership import Leadership, Lost
from tenure.errors import TenureError
from tenure.objects.background import background

__all__ = ["Keeper"]

logger = logging.getLogger("tenure.chain")


class Keeper:
    """The looks of one leadership, on the background loop. ``on_lost`` is called from there."""

    def __init__(self, leadership: Leadership, on_lost: Callable[[Lost], None]) -> None:
        self._leadership = leadership
        self._on_lost = on_lost
        self._task: Future[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = background().start(self._repeat())

    def stop(self) -> None:
        """End that."""
        if self._task is not None:
            self._task.cancel()

    async def _repeat(self) -> None:
        while (lost := self._leadership.lost) is None:
            try:
                await self._leadership.prove()
            except TenureError as error:
                if error is not self._leadership.lost:
                    logger.warning("the home does not answer: %s", error.message)
            if self._leadership.lost is None:
                await asyncio.sleep(self._leadership.chain.settings.prove_ms / 1000)
        self._on_lost(lost)
