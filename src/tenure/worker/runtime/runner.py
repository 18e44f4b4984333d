"""One task's flow: source → slots → handling → settler, with heartbeats over everything in between.

A job is waiting, running or being settled, and held in all three. Nothing here waits per stage: a job costs one task,
which runs its handler and hands its verdict on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tenure.worker.backends.backend import Backend
from tenure.worker.middleware import Middleware
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.options import TaskOptions
from tenure.worker.processes.executors import Places
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.heartbeat import Heartbeat
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Ages
from tenure.worker.runtime.pace import Bucket, Lane, Slots
from tenure.worker.runtime.settler import RELEASED, Settler
from tenure.worker.runtime.source import Feed
from tenure.worker.runtime.timing import Timing, end, unless, within
from tenure.worker.runtime.typed_delivery import handling_for
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import Verdict

__all__ = ["Runner"]

log = logging.getLogger("tenure.worker")

_HURRY_MS: Final = 500
"""How long the last verdicts may take once somebody is in a hurry."""


class Runner:
    """Runs one task. ``start``, then ``drain``; ``side`` keeps its jobs, ``places`` is where its handlers run."""

    def __init__(
        self,
        task: Handler[Any],
        *,
        side: Backend,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        slots: Slots,
        places: Places,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        options = task.options
        self.queue = options.queue
        self._lease_ms = options.lease_ms
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._slots = slots
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._ages = Ages()
        self._waiting: deque[HeldJob] = deque()
        self._running: dict[HeldJob, asyncio.Task[Verdict | None]] = {}
        self._draining = False
        self._idle = asyncio.Event()
        self._concurrency = settings.concurrency_of(options.concurrency)
        self._depth = _depth(options, self._concurrency)
        self._bucket = None if options.rate is None else Bucket(options.rate, timing.now_ms())
        self._pacing: asyncio.Task[None] | None = None
        self._lane = Lane(options.weight, ready=self._ready, start=self._start)
        slots.add(self._lane)
        self._held = Heartbeat(
            side,
            self.queue,
            lease_ms=options.lease_ms,
            timing=timing,
            settings=settings,
            stats=stats,
            on_lost=self._on_lost,
        )
        self._settler = Settler(
            side, self.queue, timing=timing, settings=settings, stats=stats, on_settled=self._on_settled
        )
        handling = handling_for(
            task,
            side=side,
            timing=timing,
            executor=places,
            settle=self._settler.settle,
            middlewares=middlewares,
        )
        self._handle = handling.handle
        self._source = side.source(self._feed())
        places.on_change = self._on_places
        self._beating: asyncio.Task[None] | None = None

    def _feed(self) -> Feed:
        """What the source is told about this flow, and where it brings jobs."""
        return Feed(
            depth=self._depth,
            spare=self._depth - self._concurrency,
            timing=self._timing,
            settings=self._settings,
            stats=self._stats,
            room=lambda: self._depth - len(self._held),
            deliver=self._deliver,
            on_open=self._held.extend_all,
        )

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to take and run jobs; gives what must not end before the drain."""
        self._beating = asyncio.create_task(self._held.run())
        self._on_places()
        return [self._beating, self._source.start()]

    @property
    def is_able(self) -> bool:
        """Whether handlers can be run at all; not while no process for them starts."""
        return self._places.is_able

    # In

    async def _deliver(self, jobs: list[HeldJob], claimed_wall_ms: int) -> None:
        """Take jobs in. What was long on its way, as after a pause of this process (fault 24), may be another's by now:
        it is asked for before it is begun.
        """
        now_ms = self._timing.now_ms()
        age_ms = self._ages.age_ms(claimed_wall_ms, now_ms)
        for job in jobs:
            job.deadline_ms = now_ms - age_ms + self._lease_ms
        if age_ms * 3 > self._lease_ms:
            jobs = await self._confirmed(jobs)
        else:
            self._held.take(jobs)
        self._waiting.extend(jobs)
        self._on_places()

    async def _confirmed(self, jobs: list[HeldJob]) -> list[HeldJob]:
        """Those of old jobs that are still ours; none where nobody can be asked."""
        for job in jobs:
            job.deadline_ms = self._timing.now_ms() + self._lease_ms
        self._held.take(jobs)
        try:
            is_answered = await self._held.extend(jobs)
        except asyncio.CancelledError:
            self._waiting.extend(jobs)  # to be given back
            raise
        if is_answered:
            self._ages.reset()
            return [job for job in jobs if not job.lost]
        for job in jobs:
            self._held.drop(job)
        return []

    def _on_places(self) -> None:
        """Take jobs while they can be run. Where none can, those that wait are for others, and are not kept alive."""
        if self._draining:
            return
        if self._places.is_able:
            self._source.resume()
            self._fill()
        else:
            self._source.pause()
            self._give_back()

    def _give_back(self) -> None:
        """Release what was not begun."""
        for job in self._waiting:
            if not job.lost:
                self._settler.put(job, RELEASED)
        self._waiting.clear()
        self._stats.prefetched = 0

    # Running

    def _fill(self) -> None:
        self._slots.fill(self._lane)
        self._stats.prefetched = len(self._waiting)
        self._stats.in_flight = len(self._running)

    def _ready(self) -> bool:
        """Whether a job may start now."""
        if self._draining or len(self._running) + self._places.stuck_count >= self._concurrency:
            return False
        waiting = self._waiting
        while waiting:
            if waiting[0].lost:
                waiting.popleft()
            elif waiting[0].deadline_ms <= self._timing.now_ms():
                return False  # this process was stopped for a while, and its timers are about to ring
            else:
                return self._bucket is None or self._paced(self._bucket)
        return False

    def _paced(self, bucket: Bucket) -> bool:
        wait_ms = bucket.wait_ms(self._timing.now_ms())
        if wait_ms and self._pacing is None:
            self._pacing = self._loop.create_task(self._fill_after(wait_ms))
        return not wait_ms

    async def _fill_after(self, wait_ms: float) -> None:
        await self._timing.sleep_ms(wait_ms)
        self._pacing = None
        self._fill()

    def _start(self) -> None:
        job = self._waiting.popleft()
        if self._bucket is not None:
            self._bucket.take()
        self._stats.queued_ms.observe(max(0, self._timing.wall_ms() - job.ts))
        self._running[job] = task = self._loop.create_task(self._handle(job))
        # Not in the task itself: one that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._ended, job, self._timing.now_ms()))

    def _ended(self, job: HeldJob, started_ms: int, task: asyncio.Task[Verdict | None]) -> None:
        """A handler has ended, or was cancelled: lost, or given back, and whoever cancelled it does the rest."""
        del self._running[job]
        self._slots.free()
        verdict: Verdict | None = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                verdict = task.result()
            else:
                why = "job %d of %s could not be handled: it comes back after its lease"
                log.error(why, job.seq, self.queue, exc_info=error)
        self._stats.handled(None if verdict is None else verdict.kind, handler_ms=self._timing.now_ms() - started_ms)
        self._end(job, verdict)
        self._fill()
        if not self._running:
            self._idle.set()

    def _end(self, job: HeldJob, verdict: Verdict | None) -> None:
        """Without a verdict the lease simply ends, one lease time from now. A handler that still runs, in a thread that
        nobody can stop, hears from now on that the job is gone.
        """
        if verdict is not None and not job.lost and not job.settled:
            self._settler.put(job, verdict)
        elif not job.settled and not self._draining:
            self._held.drop(job)
            self._source.freed()
            if not job.lost:
                self._held.give_word(job)
        job.lost = True

    def _on_settled(self, job: HeldJob) -> None:
        self._held.drop(job)
        self._source.freed()

    def _on_lost(self, job: HeldJob) -> None:
        running = self._running.get(job)
        if running is not None:
            log.warning("the lease on job %d of %s is lost: its handler is cancelled", job.seq, self.queue)
            running.cancel()
        else:
            self._loop.call_soon(self._fill)
        self._source.freed()

    # The end

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take no more, give back what was not begun, let running jobs finish; then give back the rest (fault 37).

        ``hurry`` cuts the wait short.
        """
        self._draining = True
        await unless(hurry, self._source.stop())
        await self._source.cut()
        self._give_back()
        await self._finish(hurry)
        await self._cancel()
        await self._settler.close(_HURRY_MS if hurry.is_set() else self._settings.flush_ms)
        for task in (self._beating, self._pacing):
            if task is not None:
                await end(task)
        await self._places.close()

    async def _finish(self, hurry: asyncio.Event) -> None:
        """Until nothing runs, the time for it is over, or somebody is in a hurry."""
        with suppress(TimeoutError):
            await within(self._timing, self._settings.drain_ms, unless(hurry, self._until_idle()))

    async def _until_idle(self) -> None:
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def _cancel(self) -> None:
        """End what still runs, wait a little for it to clean up, and give it back."""
        left = [job for job in self._running if not job.lost]
        for task in self._running.values():
            task.cancel()
        if left:
            try:
                await within(self._timing, self._settings.cancel_ms, self._until_idle())
            except TimeoutError:
                log.warning("%d handlers of %s did not end when cancelled", len(self._running), self.queue)
        for job in left:
            if not job.settled:
                self._settler.put(job, RELEASED)


def _depth(options: TaskOptions, concurrency: int) -> int:
    """How many jobs are held: those that run, those that follow, but no more than a rate allows within a lease."""
    depth = concurrency + options.prefetch
    if options.rate is not None:
        depth = min(depth, max(1, options.rate.count * options.lease_ms // options.rate.per_ms))
    return depth
