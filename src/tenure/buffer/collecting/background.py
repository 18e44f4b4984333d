"""The collector in the background of a consumer: it passes now and then, and stops once the consumer is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenure.buffer.collecting.collector import Collector
from tenure.buffer.manifest.format import State
from tenure.buffer.manifest.journal import Journal
from tenure.errors import LeaseLost, TenureError

__all__ = ["BackgroundCollector"]


class BackgroundCollector:
    """One pass at a time on a consumer's journal; ``guard`` raises LeaseLost once it must not go on."""

    def __init__(self, journal: Journal, guard: Callable[[State], None], *, wanted: bool) -> None:
        self._journal = journal
        self._collector = Collector.of(journal, guard)
        self._wanted = wanted
        self._passed_at = 0
        self._pass: asyncio.Task[None] | None = None

    def reached(self, frontier: int) -> None:
        """Let it pass if the frontier has moved by ``ack_every`` batches since the last time."""
        if frontier - self._passed_at >= self._journal.settings.ack_every:
            self.begin(frontier)

    def begin(self, frontier: int) -> None:
        """Let it pass, unless it is at it."""
        if self._wanted and (self._pass is None or self._pass.done()):
            self._passed_at = frontier
            self._pass = asyncio.create_task(self._run_once())

    async def idle(self) -> None:
        """Wait for the pass under way."""
        if self._pass is not None:
            await asyncio.gather(self._pass, return_exceptions=True)

    async def close(self) -> None:
        """Cut short what is under way; the next pass finishes it."""
        if self._pass is not None:
            self._pass.cancel()
            await self.idle()

    async def _run_once(self) -> None:
        try:
            await self._collector.run_once()
        except LeaseLost:
            self._wanted = False
        except TenureError:
            self._journal.metrics.collector_failures += 1
