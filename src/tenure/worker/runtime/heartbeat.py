"""`Heartbeat`: extend the leases of held jobs, running or prefetched, and report lost leases.

A job is extended once a third of its task's lease has passed, in one request with all others that are nearly due. A job
that its handler extended for longer is extended as often, each time for as long as the handler asked. A job is lost
when the broker skips it, or when our own clock passes its deadline before an extend was answered; no other worker can
hold it before that.
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
"""The next heartbeat of a job whose lease has ended while its verdict waits for an answer."""


class Heartbeat:
    """The jobs that one task holds. ``on_lost`` is called with each job whose lease is lost."""

    def __init__(
        self,
        backend: Backend,
        queue: str,
        *,
        lease_ms: int,
        timing: Timing,
        settings: WorkerSettings,
        stats: QueueStats,
        on_lost: Callable[[HeldJob], None],
    ) -> None:
        self._backend = backend
        self._extender = Extender(backend, lease_ms=lease_ms, timing=timing)
        self._queue = queue
        self._lease_ms = lease_ms
        self._third_ms = lease_ms // 3
        self._timing = timing
        self._settings = settings
        self._stats = stats
        self._on_lost = on_lost
        self._held: dict[int, HeldJob] = {}
        self._arrival = asyncio.Event()
        self._proofs: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._held)

    # Holding

    def take(self, jobs: Iterable[HeldJob]) -> None:
        """Hold jobs from now on. A job that was held already was delivered again because its first lease is lost."""
        for job in jobs:
            before = self._held.pop(job.seq, None)
            if before is not None:
                self._lose(before)
            job.beat_ms = job.deadline_ms - 2 * self._third_ms
            self._held[job.seq] = job
        self._arrival.set()

    def holds(self, job: HeldJob) -> bool:
        """Return whether a job is held, which it is until it is settled or lost."""
        return self._held.get(job.seq) is job

    def drop(self, job: HeldJob) -> None:
        """Stop holding a job that was settled or given up."""
        if self._held.get(job.seq) is job:
            del self._held[job.seq]

    def lose(self, job: HeldJob) -> None:
        """Stop holding a job whose lease the broker knows to be over."""
        self.drop(job)
        self._lose(job)

    def _lose(self, job: HeldJob) -> None:
        """Mark a lease as lost. A job that is being settled is left to the answer to its verdict."""
        job.deadline_ms = 0
        if not job.settled:
            job.lost = True
            self._stats.leases_lost += 1
            self._on_lost(job)

    # Heartbeats

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat())
                group.create_task(self._watch_deadlines())
        finally:
            for proof in self._proofs:
                proof.cancel()

    async def _beat(self) -> None:
        """Extend each job once a third of its lease has passed. A failed extend is repeated sooner."""
        while True:
            await self._until_held()
            await self._sleep_until(min(job.beat_ms for job in self._held.values()))
            # Look a little ahead, so that jobs due shortly after join the request.
            due_ms = self._timing.now_ms() + self._third_ms // 4
            due = [job for job in self._held.values() if job.beat_ms <= due_ms]
            if due and not await self.extend(due):
                await self._timing.sleep_ms(max(1, min(self._third_ms // 4, 1_000)))

    async def _watch_deadlines(self) -> None:
        """Give up jobs whose deadline passes without an answered extend, also while an extend is in flight."""
        while True:
            await self._until_held()
            late_ms = await self._sleep_until(min(job.deadline_ms for job in self._held.values()))
            expired = self.expire()
            if expired:
                self._warn_of_stall(late_ms, len(expired))
                self.prove_alive(expired[0])

    def _warn_of_stall(self, late_ms: int, lost_count: int) -> None:
        """Log that a blocked event loop lost the leases: no heartbeat is sent while it does not run."""
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
        """Sleep until ``due_ms``, but at most a third of a lease, because a job that is due earlier may arrive; return
        how many ms too late the sleep ended.
        """
        began_ms = self._timing.now_ms()
        sleep_ms = max(1, min(due_ms - began_ms, self._third_ms))
        await self._timing.sleep_ms(sleep_ms)
        return self._timing.now_ms() - began_ms - sleep_ms

    def expire(self) -> list[HeldJob]:
        """Give up every job whose deadline has passed, and return them."""
        now_ms = self._timing.now_ms()
        expired = [job for job in self._held.values() if job.deadline_ms <= now_ms]
        for job in expired:
            self.drop(job)
            self._lose(job)
        return expired

    def prove_alive(self, job: HeldJob) -> None:
        """Send an extend in the background: the broker stops feeding a stream after a silent lease expiry."""
        proof = asyncio.ensure_future(self._send_proof(job))
        self._proofs.add(proof)
        proof.add_done_callback(self._proofs.discard)

    async def _send_proof(self, job: HeldJob) -> None:
        with suppress(TenureError, TimeoutError):
            await within(self._timing, self._lease_ms, self._backend.extend([job], lease_ms=self._lease_ms))

    async def extend_all(self) -> None:
        """Extend everything held at once, after the broker was away: a job that it skips is lost."""
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
        """Group jobs by the length of their extend, at most ``batch_max`` to a request."""
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
        """Send one extend. It times out before the next heartbeat is due, so that a dead connection does not cost the
        lease.
        """
        lease_ms = max(map(self._extender.length_ms, batch))
        call = self._extender.extend(batch, lease_ms=lease_ms)
        self._stats.heartbeats += 1
        self._skipped(await within(self._timing, max(self._third_ms, 100), call))

    def _skipped(self, jobs: Iterable[HeldJob]) -> None:
        """Give up jobs whose lease the broker does not know. A job that is being settled is held until that is
        answered, and not extended again: most likely its verdict has arrived.
        """
        for job in jobs:
            if self._held.get(job.seq) is not job:
                continue
            if job.settled:
                job.beat_ms = _NEVER_MS
            else:
                del self._held[job.seq]
                self._lose(job)
