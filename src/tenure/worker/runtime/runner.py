"""`Runner`: the flow of one task: source → slots → delivery → settler, with heartbeats over all held jobs.

A job is waiting, running or being settled, and held in all three states. There is no queue between the stages: a job
costs one asyncio task, which runs its handler and passes its verdict to the settler.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tenure.worker.backends.backend import Backend
from tenure.worker.middleware import Middleware
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.options import TaskOptions
from tenure.worker.processes.board import Places, private_places
from tenure.worker.processes.executors import Executor
from tenure.worker.runtime.begin import ALONE_LOST_COUNT, Begin, begin
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.heartbeat import Heartbeat
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Ages
from tenure.worker.runtime.pace import Bucket, Share, Slots
from tenure.worker.runtime.settler import Settler
from tenure.worker.runtime.source import Feed
from tenure.worker.runtime.timing import Timing, end, unless, within
from tenure.worker.runtime.typed_delivery import delivery_for
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import RETURNED, Verdict, VerdictKind

__all__ = ["Runner"]

log = logging.getLogger("tenure.worker")

_HURRY_MS: Final = 500
"""How long the last verdicts may take after a second stop signal."""


class Runner:
    """Runs one task: ``start``, then ``drain``. ``backend`` keeps its jobs, ``executor`` runs its handlers. ``places``
    show which jobs run, ``hear_suspects`` takes how many suspects wait at the backend.
    """

    def __init__(
        self,
        task: Handler[Any],
        *,
        backend: Backend,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        slots: Slots,
        executor: Executor,
        middlewares: Sequence[Middleware] = (),
        places: Places | None = None,
        hear_suspects: Callable[[int], None] = lambda count: None,
    ) -> None:
        options = task.options
        self.queue = options.queue
        self._backend = backend
        self._hear_suspects = hear_suspects
        self._lease_ms = options.lease_ms
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._slots = slots
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._ages = Ages()
        self._waiting: deque[HeldJob] = deque()
        self._running: dict[HeldJob, asyncio.Task[Verdict | None]] = {}
        self._begun: set[HeldJob] = set()
        self._draining = False
        self._idle = asyncio.Event()
        self._concurrency = settings.concurrency_of(options.concurrency)
        self._places = places or private_places(self._concurrency)
        self._depth = _depth(options, self._concurrency, prefetch=options.prefetch if slots.prefetches else 0)
        self._bucket = None if options.rate is None else Bucket(options.rate, timing.now_ms())
        self._pacing: asyncio.Task[None] | None = None
        self._share = Share(
            options.weight, ready=self._ready, start=self._start, freed=self._on_room, give_back=self._give_back_one
        )
        slots.add(self._share)
        self._held = Heartbeat(
            backend,
            self.queue,
            lease_ms=options.lease_ms,
            timing=timing,
            settings=settings,
            stats=stats,
            on_lost=self._on_lost,
        )
        self._settler = Settler(
            backend, self.queue, timing=timing, settings=settings, stats=stats, on_settled=self._on_settled
        )
        delivery = delivery_for(
            task,
            backend=backend,
            timing=timing,
            executor=executor,
            settle=self._settler.settle,
            middlewares=middlewares,
        )
        self._handle = delivery.handle
        self._source = backend.source(self._feed())
        executor.on_change = self._on_executor_change
        self._beating: asyncio.Task[None] | None = None

    def _feed(self) -> Feed:
        """Return the limits and the callbacks for the source."""
        return Feed(
            depth=self._depth,
            spare=self._depth - self._concurrency,
            timing=self._timing,
            settings=self._settings,
            stats=self._stats,
            room=lambda: min(self._depth - len(self._held), self._slots.room()),
            deliver=self._deliver,
            on_open=self._held.extend_all,
            on_cut=self._held.extend_all,
            hear_suspects=self._hear_suspects,
        )

    def start(self) -> list[asyncio.Task[None]]:
        """Start to take and run jobs; returns the tasks that must not end before the drain."""
        self._beating = asyncio.create_task(self._held.run())
        self._on_executor_change()
        return [self._beating, self._source.start()]

    @property
    def is_able(self) -> bool:
        """Whether handlers can be run; False while no process for them starts."""
        return self._executor.is_able

    def job_of(self, task: asyncio.Task[Any]) -> HeldJob | None:
        """Return the job that a task runs; in any thread, while the loop stands still."""
        return next((job for job, running in self._running.copy().items() if running is task), None)

    # In

    async def _deliver(self, jobs: list[HeldJob], claimed_wall_ms: int) -> None:
        """Take jobs from the source. A job that was long under way, as after a pause of this process (fault 24), may
        belong to another worker by now: it is extended before it is begun.
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
        self._slots.enter(self._share, jobs)
        self._on_executor_change()

    async def _confirmed(self, jobs: list[HeldJob]) -> list[HeldJob]:
        """Extend jobs that were long under way and return those still ours; give all back where the broker cannot be
        asked.
        """
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
            self._settler.put(job, RETURNED)
        return []

    def _on_executor_change(self) -> None:
        """Take jobs while the executor can run them; otherwise pause the source and give waiting jobs back."""
        if self._draining:
            return
        if self._executor.is_able:
            self._source.resume()
            self._fill()
        else:
            self._source.pause()
            self._give_back()

    def _give_back(self) -> None:
        """Return the jobs that were not begun."""
        for job in self._waiting:
            if not job.lost:
                self._settler.put(job, RETURNED)
        self._waiting.clear()
        self._stats.prefetched = 0

    def _give_back_one(self, job: HeldJob) -> None:
        """Return a job that waits for others for too long."""
        self._waiting.remove(job)
        self._settler.put(job, RETURNED)

    def _on_room(self) -> None:
        self._source.freed()

    # Running

    def _fill(self) -> None:
        self._slots.fill(self._share)
        self._stats.prefetched = len(self._waiting)
        self._stats.in_flight = len(self._running)

    def _ready(self) -> bool:
        """Return whether a job may start now."""
        if self._draining or len(self._running) + self._executor.stuck_count >= self._concurrency:
            return False
        waiting = self._waiting
        while waiting:
            if waiting[0].lost:
                waiting.popleft()
            elif waiting[0].deadline_ms <= self._timing.now_ms():
                return False  # this process was paused: the heartbeat is about to expire this job
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
        if job.lost_count:
            self._stats.suspects += 1
        place = self._places.free.pop()
        if job.lost_count >= ALONE_LOST_COUNT:
            handling = self._begin_and_handle(job, place)
        else:
            self._places.slots[place] = job.seq
            handling = self._handle(job)
        self._running[job] = task = self._loop.create_task(handling)
        # Not in the task itself: one that is cancelled before its first step runs none of its code.
        task.add_done_callback(partial(self._ended, job, place, self._timing.now_ms()))

    async def _begin_and_handle(self, job: HeldJob, place: int) -> Verdict | None:
        """Run the handler of a job that may end this process, once the broker knows that it was begun."""
        outcome = await begin(
            job, self._backend, timing=self._timing, settings=self._settings, is_ending=lambda: self._draining
        )
        match outcome:
            case Begin.BEGUN:
                self._begun.add(job)
                self._places.note(place, job.seq)
                return await self._handle(job)
            case Begin.NOT_NOW:
                return Verdict(VerdictKind.NACK, self._settings.begin_retry_ms, None, returned=True)
            case Begin.LOST:
                self._held.lose(job)
                return None

    def _ended(self, job: HeldJob, place: int, started_ms: int, task: asyncio.Task[Verdict | None]) -> None:
        """Pass on the verdict of a handler that ended. A cancelled one was lost or given back: the canceller settles
        it.
        """
        del self._running[job]
        self._places.slots[place] = 0
        self._places.free.append(place)
        verdict: Verdict | None = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                verdict = task.result()
            else:
                why = "job %d of %s could not be handled: it comes back after its lease"
                log.error(why, job.seq, self.queue, exc_info=error)
        self._stats.handled(None if verdict is None else verdict.kind, handler_ms=self._timing.now_ms() - started_ms)
        if verdict is None and self._backend.isolates and not task.cancelled():
            verdict = self._undecided(job)
        self._end(job, verdict)
        if job not in self._begun:
            self._slots.free()
            self._fill()
        elif not self._held.holds(job):  # the next one may begin once the broker knows that this one has ended
            self._free(job)
        if not self._running:
            self._idle.set()

    def _undecided(self, job: HeldJob) -> Verdict:
        """Return the verdict for a job whose handler gave none: it comes back when its lease would have ended, or now
        where the worker ends. The lease itself must not end without a word, as if this worker was lost.
        """
        return Verdict(VerdictKind.NACK, 0 if self._draining else max(0, job.deadline_ms - self._timing.now_ms()))

    def _end(self, job: HeldJob, verdict: Verdict | None) -> None:
        """Settle a job with its verdict; without one, let its lease run out. ``job.lost`` is set either way, so that a
        handler that still runs in a thread, which cannot be stopped, sees that the job is gone.
        """
        if verdict is not None and not job.lost and not job.settled:
            self._settler.put(job, verdict)
        elif not job.settled and not self._draining:
            self._held.drop(job)
            self._source.freed()
            if not job.lost:
                self._held.prove_alive(job)
        job.lost = True

    def _free(self, job: HeldJob) -> None:
        self._begun.discard(job)
        self._slots.free()
        self._fill()

    def _on_settled(self, job: HeldJob) -> None:
        self._held.drop(job)
        self._source.freed()
        if job in self._begun and job not in self._running:
            self._free(job)

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
        """Take no more jobs, give back those not begun, let running ones finish, then give back the rest (fault 37).

        Setting ``hurry`` ends the wait.
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
        await self._executor.close()

    async def _finish(self, hurry: asyncio.Event) -> None:
        """Wait until no handler runs, ``drain_ms`` have passed, or ``hurry`` is set."""
        with suppress(TimeoutError):
            await within(self._timing, self._settings.drain_ms, unless(hurry, self._until_idle()))

    async def _until_idle(self) -> None:
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def _cancel(self) -> None:
        """Cancel handlers that still run, wait ``cancel_ms`` for them to clean up, and give their jobs back."""
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
                self._settler.put(job, RETURNED)


def _depth(options: TaskOptions, concurrency: int, *, prefetch: int) -> int:
    """Return how many jobs to hold: running plus prefetched, at most what the rate can start within a lease."""
    depth = concurrency + prefetch
    if options.rate is not None:
        depth = min(depth, max(1, options.rate.count * options.lease_ms // options.rate.per_ms))
    return depth
