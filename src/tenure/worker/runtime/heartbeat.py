"""Keeps alive what is held, running or prefetched, and tells what was lost.

A job is extended once a third of its task's lease has passed, together with all others that are about as far: few
requests, however many jobs. One that its handler extended for longer is asked for as often, and each time for as long
as its handler asked. A job is lost when the broker skips it, or when our own clock passes its deadline before an extend
was answered; whichever comes first, nobody else can have it before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from tenure.errors import NotFound, TenureError
from tenure.worker.backends.backend import Backend
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.runtime.extender import Extender
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing, within
from tenure.worker.settings import WorkerSettings

__all__ = ["Heartbeat"]

log = logging.getLogger("tenure.worker")

_NEVER_MS: Final = 2**62
"""The next beat of a job whose lease has ended, while its verdict waits for an answer."""


class Heartbeat:
    """The jobs that one task holds. ``on_lost`` is told of each one that is not ours any more."""

    def __init__(
        self,
        side: Backend,
        queue: str,
        *,
        lease_ms: int,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        on_lost: Callable[[HeldJob], None],
    ) -> None:
        self._side = side
        self._extender = Extender(side, lease_ms=lease_ms, timing=timing)
        self._queue = queue
        self._lease_ms = lease_ms
        self._third_ms = lease_ms // 3
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._on_lost = on_lost
        self._held: dict[int, HeldJob] = {}
        self._arrival = asyncio.Event()
        self._words: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._held)

    # Holding

    def take(self, jobs: Iterable[HeldJob]) -> None:
        """Hold jobs from now on. One that was held already came again because its first lease is gone."""
        for job in jobs:
            before = self._held.pop(job.seq, None)
            if before is not None:
                self._lose(before)
            job.beat_ms = job.deadline_ms - 2 * self._third_ms
            self._held[job.seq] = job
        self._arrival.set()

    def drop(self, job: HeldJob) -> None:
        """Hold a job no longer: it was settled, or given up."""
        if self._held.get(job.seq) is job:
            del self._held[job.seq]

    def _lose(self, job: HeldJob) -> None:
        """One that is being settled is left to the answer of that, which knows more."""
        job.deadline_ms = 0
        if not job.settled:
            job.lost = True
            self._stats.leases_lost += 1
            self._on_lost(job)

    # Beating

    async def run(self) -> None:
        """Beat until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._watch_deadlines())
        finally:
            for word in self._words:
                word.cancel()

    async def _beat(self) -> None:
        """Extend whatever a third of its lease has passed for. A try that fails is made again sooner."""
        while True:
            await self._until_held()
            await self._sleep_until(min(job.beat_ms for job in self._held.values()))
            # A little ahead, so that what came shortly after goes along.
            due_ms = self._timing.now_ms() + self._third_ms // 4
            due = [job for job in self._held.values() if job.beat_ms <= due_ms]
            if due and not await self.extend(due):
                await self._timing.sleep_ms(max(1, min(self._third_ms // 4, 1_000)))

    async def _watch_deadlines(self) -> None:
        """Give up what nobody confirmed in time, also while an extend is on its way."""
        while True:
            await self._until_held()
            late_ms = await self._sleep_until(min(job.deadline_ms for job in self._held.values()))
            expired = self.expire()
            if expired:
                self._warn_of_a_standstill(late_ms, len(expired))
                self.give_word(expired[0])

    def _warn_of_a_standstill(self, late_ms: int, lost_count: int) -> None:
        """Say why, where it was not the broker: nothing beats while the event loop does not run."""
        if late_ms > self._third_ms:
            log.warning(
                "the event loop stood still for %d ms, and %d leases on %s ran out: a handler blocks it (make that one "
                'a plain function, which runs in a thread, or run="process"), or this process was stopped',
                *(late_ms, lost_count, self._queue),
            )

    async def _until_held(self) -> None:
        while not self._held:
            self._arrival.clear()
            await self._arrival.wait()

    async def _sleep_until(self, due_ms: int) -> int:
        """Sleep for a third of a lease at most, because something that is due earlier may come meanwhile; return by how
        much it woke too late.
        """
        began_ms = self._timing.now_ms()
        sleep_ms = max(1, min(due_ms - began_ms, self._third_ms))
        await self._timing.sleep_ms(sleep_ms)
        return self._timing.now_ms() - began_ms - sleep_ms

    def expire(self) -> list[HeldJob]:
        """Give up everything whose deadline has passed."""
        now_ms = self._timing.now_ms()
        expired = [job for job in self._held.values() if job.deadline_ms <= now_ms]
        for job in expired:
            self.drop(job)
            self._lose(job)
        return expired

    def give_word(self, job: HeldJob) -> None:
        """The broker feeds no stream whose worker let a lease run out without a word: tell it that this one lives."""
        word = asyncio.ensure_future(self._say(job))
        self._words.add(word)
        word.add_done_callback(self._words.discard)

    async def _say(self, job: HeldJob) -> None:
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._lease_ms, self._side.extend([job], lease_ms=self._lease_ms))

    async def extend_all(self) -> None:
        """Ask about everything held at once, after the broker was gone: what it does not know of is lost."""
        await self.extend(list(self._held.values()))

    async def extend(self, jobs: Sequence[HeldJob]) -> bool:
        """Extend jobs in as few requests as possible; False where the broker could not be asked."""
        for batch in self._batches(jobs):
            try:
                await self._extend_batch(batch)
            except NotFound:  # the queue is gone, and every job with it
                self._skipped(batch)
            except (TenureError, TimeoutError) as error:
                log.debug("%d jobs of %s could not be extended: %s", len(batch), self._queue, error)
                return False
        return True

    def _batches(self, jobs: Sequence[HeldJob]) -> Iterator[list[HeldJob]]:
        """Those that are extended for the same time together, as many as one request takes."""
        by_length: dict[int, list[HeldJob]] = {}
        for job in jobs:
            by_length.setdefault(self._extender.length_ms(job), []).append(job)
        size = self._settings.batch_max
        for alike in by_length.values():
            for start in range(0, len(alike), size):
                batch = [job for job in alike[start : start + size] if self._held.get(job.seq) is job]
                if batch:
                    yield batch

    async def _extend_batch(self, batch: list[HeldJob]) -> None:
        """One request. Its answer must come before the next beat is due, or a dead connection would cost the lease."""
        lease_ms = max(map(self._extender.length_ms, batch))
        call = self._extender.extend(batch, lease_ms=lease_ms)
        self._stats.heartbeats += 1
        self._skipped(await within(self._timing, max(self._third_ms, 100), call))

    def _skipped(self, jobs: Iterable[HeldJob]) -> None:
        """Give up what the broker knows no lease of. One that is being settled stays until that is answered, and is not
        asked for again: most likely its verdict has arrived.
        """
        for job in jobs:
            if self._held.get(job.seq) is not job:
                continue
            if job.settled:
                job.beat_ms = _NEVER_MS
            else:
                del self._held[job.seq]
                self._lose(job)
