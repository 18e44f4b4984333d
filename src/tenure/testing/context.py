"""`make_context`: a `Context` to call a handler with in a test, which records its verdicts; and `ManualTiming`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from heapq import heappop, heappush
from itertools import count
from typing import Any

import msgspec

from tenure.durations import Duration, ms_of
from tenure.testing.clock import ManualClock
from tenure.worker.context import Context
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import Timing
from tenure.worker.verdict import Verdict

__all__ = ["HandlerContext", "ManualTiming", "make_context"]


class ManualTiming:
    """The `Timing` of the worker runtime on a `ManualClock`.

    >>> from tenure.testing import ManualClock, ManualTiming
    >>> clock = ManualClock(boot_ms=1_000)
    >>> timing = ManualTiming(clock)
    >>> clock.advance(500)
    >>> timing.now_ms()
    1500
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        clock.subscribe(self._wake)

    def now_ms(self) -> int:
        return self._clock.boot_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    async def sleep_ms(self, ms: float) -> None:
        """Return once the clock has moved by ``ms``; other tasks run in any case."""
        if ms <= 0:
            return await asyncio.sleep(0)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self.now_ms() + ms, next(self._order), future))
        await future

    @property
    def sleeping(self) -> int:
        """How many sleepers wait for the clock."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def _wake(self) -> None:
        now_ms = self.now_ms()
        while self._sleepers and (self._sleepers[0][0] <= now_ms or self._sleepers[0][2].done()):
            _, _, future = heappop(self._sleepers)
            if not future.done():
                future.set_result(None)


class HandlerContext(Context):
    """A context that records instead of calling a broker.

    ``verdict`` is the verdict that the handler set by its context, None where it did not; ``extended_ms`` are the
    leases that it asked for, None for the task's own. The lease runs on ``clock``.
    """

    __slots__ = ("_notes", "clock")

    def __init__(self, job: HeldJob, clock: ManualClock) -> None:
        self.clock = clock
        self._notes = _RecordingReporter(clock)
        super().__init__(job, self._notes)

    @property
    def verdict(self) -> Verdict | None:
        return self._notes.verdict

    @property
    def extended_ms(self) -> list[int | None]:
        return self._notes.extended_ms

    def lose(self) -> None:
        """Lose the lease, like a worker that was away for too long."""
        self.job.lost = True


def make_context(
    queue: str = "test",
    *,
    seq: int = 1,
    attempt: int = 1,
    meta: dict[str, Any] | None = None,
    tag: str | None = None,
    timer_id: str | None = None,
    lease: Duration = "30s",
    clock: ManualClock | None = None,
) -> HandlerContext:
    """Return a context to call a handler with: ``await send(email, make_context("emails", attempt=2))``.

    >>> ctx = make_context("emails", attempt=2)
    >>> ctx.queue, ctx.attempt, ctx.lost
    ('emails', 2, False)
    >>> ctx.lose()
    >>> ctx.lost
    True
    """
    clock = clock or ManualClock()
    lease_ms = ms_of(lease, field="lease", min_ms=1)
    job = HeldJob(
        topic=queue,
        seq=seq,
        lease_id="lease-of-a-test",
        node="test",
        data=b"null",
        meta=None if meta is None else msgspec.json.encode(meta),
        tag=tag,
        ts=clock.wall_ms(),
        deliveries=attempt,
        timer_id=timer_id,
        deadline_ms=ManualTiming(clock).now_ms() + lease_ms,
        lease_ms=lease_ms,
    )
    return HandlerContext(job, clock)


class _RecordingReporter:
    """A `Reporter` that records verdicts and extends."""

    def __init__(self, clock: ManualClock) -> None:
        self.timing: Timing = ManualTiming(clock)
        self.verdict: Verdict | None = None
        self.extended_ms: list[int | None] = []

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        self.verdict = verdict
        return True

    async def extend(self, job: HeldJob, lease_ms: int | None) -> bool:
        self.extended_ms.append(lease_ms)
        job.deadline_ms = self.timing.now_ms() + max(lease_ms or 0, job.lease_ms)
        return True

    def wait(self, answer: Coroutine[Any, Any, bool]) -> bool:
        return asyncio.run(answer)
