"""A heartbeat on a clock in the test's hand, over a backend that keeps deadlines as a broker does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from tenure.errors import Overloaded
from tenure.testing import ManualClock, ManualTiming
from tenure.worker.backends.backend import Backend
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.runtime.extender import Extender
from tenure.worker.runtime.heartbeat import Heartbeat
from tenure.worker.runtime.job import HeldJob
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns

__all__ = ["LEASE_MS", "DeadlineBackend", "HeartbeatCase", "beating"]

LEASE_MS = 3_000


class DeadlineBackend:
    """A backend as far as extends go: sets a deadline to now plus what was asked, also for a shorter
    time than before.
    """

    def __init__(self, timing: ManualTiming) -> None:
        self._timing = timing
        self.deadlines: dict[int, int] = {}
        self.skips: set[int] = set()
        self.is_away = False
        self.asked: list[tuple[int, list[int], int]] = []
        """When, which seqs, for how long."""
        self.gate: asyncio.Event | None = None
        """Where it is given, requests are carried out at once, and answered when it is set."""

    async def extend(self, jobs: Sequence[HeldJob], *, lease_ms: int) -> Collection[HeldJob]:
        self.asked.append((self._timing.now_ms(), [job.seq for job in jobs], lease_ms))
        if self.is_away:
            raise Overloaded("nobody is there", code="unreachable")
        for job in jobs:
            self.deadlines[job.seq] = self._timing.now_ms() + lease_ms
        if self.gate is not None:
            await self.gate.wait()
        return [job for job in jobs if job.seq in self.skips]

    @property
    def backend(self) -> Backend:
        return cast(Backend, self)


class HeartbeatCase:
    """A heartbeat, the extends of handlers, and what was lost."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.backend = DeadlineBackend(self.timing)
        self.stats = QueueStats()
        self.lost: list[HeldJob] = []
        self.extender = Extender(self.backend.backend, lease_ms=LEASE_MS, timing=self.timing)
        self.heartbeat = Heartbeat(
            self.backend.backend,
            "q",
            lease_ms=LEASE_MS,
            timing=self.timing,
            settings=WorkerSettings(**settings),
            stats=self.stats,
            on_lost=self.lost.append,
        )

    def hold(self, *seqs: int) -> list[HeldJob]:
        """Take jobs that were claimed now."""
        deadline_ms = self.timing.now_ms() + LEASE_MS
        jobs = [HeldJob(topic="q", seq=seq, lease_id="l", node="w", data=b"1", deadline_ms=deadline_ms) for seq in seqs]
        self.backend.deadlines.update(dict.fromkeys(seqs, deadline_ms))
        self.heartbeat.take(jobs)
        return jobs

    async def advance(self, ms: int, *, step_ms: int = 50) -> None:
        for _ in range(ms // step_ms):
            self.clock.advance(step_ms)
            await turns(20)

    def ahead_ms(self, job: HeldJob) -> int:
        """By how much our deadline ends after the backend's: above 0 another may hold the job, and nobody knows."""
        return job.deadline_ms - self.backend.deadlines[job.seq]


@asynccontextmanager
async def beating(**settings: Any) -> AsyncIterator[HeartbeatCase]:
    """A heartbeat that beats until the end of the block."""
    at = HeartbeatCase(**settings)
    task = asyncio.create_task(at.heartbeat.run())
    await turns()
    try:
        yield at
    finally:
        task.cancel()
        await asyncio.wait((task,))
