"""`TimeLimit`: stop handlers that run too long. One sleeping task serves all jobs of a task: their limit is the same,
so the oldest running job always expires next, and a job costs an entry instead of a timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tenure.worker.runtime.timing import Timing

__all__ = ["TimeLimit"]


class _Running:
    """One handler under the limit, and the asyncio task that runs it."""

    __slots__ = ("cancelling", "due_ms", "expired", "task")

    def __init__(self, task: asyncio.Task[Any], due_ms: int) -> None:
        self.task = task
        self.due_ms = due_ms
        self.cancelling = task.cancelling()
        self.expired = False


class TimeLimit:
    """A limit of ``limit_ms`` for each of many coroutines."""

    def __init__(self, limit_ms: int, *, timing: Timing) -> None:
        self._limit_ms = limit_ms
        self._timing = timing
        self._running: dict[_Running, None] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Await ``work`` in this task; after the limit, cancel it and raise TimeoutError once it has ended.

        A cancellation from elsewhere stays a cancellation. Work that catches the cancel and returns does not fail.
        """
        task = asyncio.current_task()
        assert task is not None
        entry = _Running(task, self._timing.now_ms() + self._limit_ms)
        self._running[entry] = None
        if self._watcher is None:
            self._watcher = asyncio.ensure_future(self._watch())
        try:
            await work
        except asyncio.CancelledError:
            if self._over(entry):
                raise TimeoutError(f"ran longer than its time limit of {self._limit_ms} ms") from None
            raise
        finally:
            self._leave(entry)

    def _over(self, entry: _Running) -> bool:
        """Take our own cancellation back; return True where it was the only one."""
        if not entry.expired:
            return False
        entry.expired = False
        return entry.task.uncancel() <= entry.cancelling

    def _leave(self, entry: _Running) -> None:
        self._over(entry)
        self._running.pop(entry, None)
        if not self._running and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _watch(self) -> None:
        while self._running:
            oldest = next(iter(self._running))
            wait_ms = oldest.due_ms - self._timing.now_ms()
            if wait_ms > 0:
                await self._timing.sleep_ms(wait_ms)
            else:
                del self._running[oldest]
                oldest.expired = True
                oldest.task.cancel()
        self._watcher = None
