"""`Source`: take the jobs of one queue, and reconnect after every failure.

The wait before a reconnect has jitter, so that a fleet does not return to a restarted broker in one moment (fault 36).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from tenure.backoff import backoff_ms
from tenure.errors import TenureError
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.timing import Timing, end, unless, within
from tenure.worker.settings import WorkerSettings

__all__ = ["Feed", "Source"]


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The consumer of a source: at most ``depth`` jobs are held, ``spare`` of them prefetched.

    ``room`` returns how many more may come. ``deliver`` takes jobs and the time of their claim on the backend's clock;
    ``on_open`` is awaited each time that the backend answers again, ``on_cut`` each time that a flow of jobs has
    broken off. ``hear_suspects`` takes how many suspects wait at the backend.
    """

    depth: int
    spare: int
    timing: Timing
    settings: WorkerSettings
    stats: QueueStats
    room: Callable[[], int]
    deliver: Callable[[list[HeldJob], int], Awaitable[None]]
    on_open: Callable[[], Awaitable[None]]
    on_cut: Callable[[], Coroutine[Any, Any, None]]
    hear_suspects: Callable[[int], None]


class Source(ABC):
    """The jobs of one queue. A subclass takes them in `_flow`, and ends the flow in `_finish_flow` and
    `_recover_cut`.
    """

    def __init__(self, queue: str, feed: Feed, link: Link) -> None:
        self._queue = queue
        self._feed = feed
        self._link = link
        self._timing = feed.timing
        self._settings = feed.settings
        # Do not claim for a few free places while enough jobs are held.
        self._room_min = max(1, feed.spare // 2)
        self._failures = 0
        self._stopping = False
        self._flowing = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._unwanted = asyncio.Event()
        self._freed = asyncio.Event()
        self._is_open = False
        self._keeping: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _flow(self) -> None:
        """Deliver jobs until an error ends the flow, which is raised; await `_report_open` once jobs can come."""

    @abstractmethod
    async def _finish_flow(self, flowing: asyncio.Task[None]) -> None:
        """Tell the backend to send no more, and wait while ``flowing`` delivers jobs in flight, to give them back."""

    @abstractmethod
    async def _recover_cut(self) -> None:
        """Deliver jobs that were in flight when the flow was cut, to give them back."""

    def start(self) -> asyncio.Task[None]:
        """Start to take jobs, unless paused."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def freed(self) -> None:
        """Note that a job is no longer held."""
        self._freed.set()

    def pause(self) -> None:
        """Take no more jobs until `resume`; jobs in flight are still delivered."""
        self._wanted.clear()
        self._unwanted.set()

    def resume(self) -> None:
        """Take jobs again."""
        if not self._stopping:
            self._unwanted.clear()
            self._wanted.set()

    async def stop(self) -> None:
        """Take no more jobs, and keep those taken: the backend is told before the connection is cut (fault 37)."""
        self._stopping = True
        self.pause()
        if self._flowing and self._task is not None:
            await asyncio.wait((self._task,))
        await self.cut()

    async def cut(self) -> None:
        """Take no more jobs, at once: jobs in flight come back after their lease."""
        self._stopping = True
        for task in (self._task, self._keeping):
            if task is not None:
                await end(task)

    # Reconnecting

    async def _run(self) -> None:
        while not self._is_stopping():
            await self._wanted.wait()
            error = await self._run_flow()
            if error is not None and not self._unwanted.is_set():
                self._link.down(self._queue, error)
                self._feed.stats.reconnects += 1
                self._failures += 1
                await self._keep_held()
                await self._timing.sleep_ms(self._pause_ms())

    async def _keep_held(self) -> None:
        """Keep what is held over a flow that broke off, meanwhile and at once: the broker waits only for a moment
        before it takes the worker for dead, and what it has given away shows here first.
        """
        if self._is_open:
            self._is_open = False
            if self._keeping is not None:
                await end(self._keeping)
            self._keeping = asyncio.create_task(self._feed.on_cut())

    async def _run_flow(self) -> TenureError | None:
        """Run the flow until an error ends it, which is returned, or until no more jobs are wanted."""
        self._flowing = True
        flow = asyncio.create_task(self._flow())
        try:
            if not await unless(self._unwanted, _ended(flow)):
                await self._leave(flow)
            return None if flow.cancelled() else _refusal(flow)
        finally:
            self._flowing = False
            await end(flow)

    async def _leave(self, flow: asyncio.Task[None]) -> None:
        """End a flow, and deliver jobs in flight as far as they arrive within ``flush_ms``."""
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._finish_flow(flow))
        await end(flow)
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._recover_cut())

    def _is_stopping(self) -> bool:
        return self._stopping

    def _pause_ms(self) -> float:
        settings = self._settings
        return backoff_ms(self._failures, min_ms=settings.reconnect_min_ms, max_ms=settings.reconnect_max_ms)

    async def _report_open(self) -> None:
        """Note that the backend answers."""
        self._failures = 0
        self._is_open = True
        self._link.up(self._queue)
        await self._feed.on_open()

    async def _until_room(self, count: int) -> None:
        """Wait until ``count`` more jobs may come. Jobs of an earlier flow may still be held; this bounds the memory of
        both.
        """
        while self._feed.room() < count:
            self._freed.clear()
            await self._freed.wait()


async def _ended(flow: asyncio.Task[None]) -> None:
    await asyncio.wait((flow,))


def _refusal(flow: asyncio.Task[None]) -> TenureError | None:
    """Return the error that ended a flow, None where it ended by itself. Raises anything but a TenureError."""
    try:
        flow.result()
    except TenureError as error:
        return error
    return None
