"""A flow of jobs that comes back by itself, whatever breaks.

It does so after a wait drawn by chance, so that a fleet does not return to a restarted broker in one moment (fault 36).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress

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
    """Where the jobs go: at most ``depth`` are held, ``spare`` of them before their turn.

    ``room`` says how many more may come. ``deliver`` takes jobs and the moment of their claim on the clock of whoever
    keeps them; ``on_open`` is awaited each time that they answer again.
    """

    depth: int
    spare: int
    timing: Timing
    settings: WorkerSettings
    stats: QueueStats
    room: Callable[[], int]
    deliver: Callable[[list[HeldJob], int], Awaitable[None]]
    on_open: Callable[[], Awaitable[None]]


class Source(ABC):
    """The jobs of one queue. A kind of source says how they are had, in `_flow`, and what is to be said at the end."""

    def __init__(self, queue: str, feed: Feed, link: Link) -> None:
        self._queue = queue
        self._feed = feed
        self._link = link
        self._timing = feed.timing
        self._settings = feed.settings
        # Claims are not made for a handful while there is still enough to do.
        self._room_min = max(1, feed.spare // 2)
        self._failures = 0
        self._stopping = False
        self._flowing = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._unwanted = asyncio.Event()
        self._freed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _flow(self) -> None:
        """Deliver jobs until there is a reason to begin again, which is raised; `_opened` says that they come."""

    @abstractmethod
    async def _take_leave(self, flowing: asyncio.Task[None]) -> None:
        """Say that no more is wanted, and let ``flowing`` bring what was on its way: it can then be given back."""

    @abstractmethod
    async def _after_cut(self) -> None:
        """Find what was on its way when the flow was cut, to give it back."""

    def start(self) -> asyncio.Task[None]:
        """Begin to take jobs, unless paused."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def freed(self) -> None:
        """A job is not held any more."""
        self._freed.set()

    def pause(self) -> None:
        """Take no more until `resume`; what was on its way is delivered still."""
        self._wanted.clear()
        self._unwanted.set()

    def resume(self) -> None:
        """Take jobs again."""
        if not self._stopping:
            self._unwanted.clear()
            self._wanted.set()

    async def stop(self) -> None:
        """Take no more, and keep what was taken: whoever sends is told before the line is cut (fault 37)."""
        self._stopping = True
        self.pause()
        if self._flowing and self._task is not None:
            await asyncio.wait((self._task,))
        await self.cut()

    async def cut(self) -> None:
        """Take no more, at once: whatever is on its way comes back after its lease."""
        self._stopping = True
        if self._task is not None:
            await end(self._task)

    # Coming back

    async def _run(self) -> None:
        while not self._is_stopping():
            await self._wanted.wait()
            error = await self._flowed()
            if error is not None and not self._unwanted.is_set():
                self._link.down(self._queue, error)
                self._feed.stats.reconnects += 1
                self._failures += 1
                await self._timing.sleep_ms(self._pause_ms())

    async def _flowed(self) -> TenureError | None:
        """Let jobs come until there is a reason to begin again, which is returned, or until no more are wanted."""
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
        """End a flow, and deliver what was on its way as far as it can be had in time."""
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._take_leave(flow))
        await end(flow)
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._settings.flush_ms, self._after_cut())

    def _is_stopping(self) -> bool:
        return self._stopping

    def _pause_ms(self) -> float:
        settings = self._settings
        return backoff_ms(self._failures, min_ms=settings.reconnect_min_ms, max_ms=settings.reconnect_max_ms)

    async def _opened(self) -> None:
        self._failures = 0
        self._link.up(self._queue)
        await self._feed.on_open()

    async def _until_room(self, count: int) -> None:
        """What an earlier flow brought may still be held: with it and with a full new one, memory stays bounded."""
        while self._feed.room() < count:
            self._freed.clear()
            await self._freed.wait()


async def _ended(flow: asyncio.Task[None]) -> None:
    await asyncio.wait((flow,))


def _refusal(flow: asyncio.Task[None]) -> TenureError | None:
    """The error that ended a flow, None where it ended by itself; anything but a TenureError is raised."""
    try:
        flow.result()
    except TenureError as error:
        return error
    return None
