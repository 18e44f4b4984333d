"""`AppTester`: run an app, its handlers and its schedules against the real broker in memory, on a manual clock.

Jobs take the same path as in a worker: claimed, decoded, through middlewares and executors, to a settled verdict.
Back-offs, delays and schedules pass when the test advances the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tenure.client.client import AsyncClient, Client
from tenure.contract import provenance
from tenure.contract.config import LEASE_MS_MAX
from tenure.durations import Duration, ms_of
from tenure.errors import Invalid, LeaseLost, NotFound
from tenure.testing.clock import ManualClock
from tenure.testing.context import ManualTiming
from tenure.testing.server import memory_broker
from tenure.testing.wire import AppWire, ThreadWire
from tenure.worker.app import App
from tenure.worker.backends.backend import Backend
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.backends.redis_payload import unpack
from tenure.worker.options import HELD_MAX
from tenure.worker.periodic import PeriodicLoop
from tenure.worker.processes.executors import Executor, LoopExecutor, MixedExecutor, ThreadExecutor
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.timing import Timing
from tenure.worker.runtime.typed_delivery import delivery_for
from tenure.worker.timer import TimerTask
from tenure.worker.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from tenure.testing.fake_timers import FakeTimers
    from tenure.timers.model import State, TimerInfo

__all__ = ["AppTester", "DeadLetter", "QueuedJob"]

_NODE: Final = "app-tester"
_STATES: Final = ("ready", "in_flight", "delayed", "parked")
_PAGE: Final = 1_000
_HOOKS_MS: Final = 60_000
_decode: Final = msgspec.json.decode


class QueuedJob(msgspec.Struct, frozen=True):
    """A job that is not done. ``deliver_at`` is wall time in ms where it is delayed."""

    seq: int
    data: Any
    state: str
    deliveries: int
    tag: str | None = None
    meta: dict[str, Any] = {}
    deliver_at: int | None = None
    timer_id: str | None = None


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter, with its payload and its reason."""

    seq: int
    data: Any
    reason: str
    deliveries: int
    tag: str | None = None
    meta: dict[str, Any] = {}
    timer_id: str | None = None


class AppTester:
    """Runs an app in a test. Inside the block, the app's puts go to a broker in memory, and its timers to a fake Redis;
    after the block the app uses its own again.

    Its startup hooks run when the block begins, its shutdown hooks when it ends. Leases last a day, as if heartbeats
    renewed them. Handlers of processes run in threads of the test.

    >>> import asyncio
    >>> from tenure import App, Reject
    >>> from tenure.testing import AppTester
    >>> app = App()
    >>> @app.task("mail")
    ... async def send(to: str) -> None:
    ...     raise Reject("no such address")
    >>> async def main():
    ...     async with AppTester(app) as tester:
    ...         await send.put("ann")
    ...         await tester.run_until_idle()
    ...         return [letter.reason for letter in await tester.dead(send)]
    >>> asyncio.run(main())
    ['no such address']
    """

    def __init__(self, app: App, clock: ManualClock | None = None) -> None:
        self.app = app
        self.clock = clock or ManualClock()
        self.timing = ManualTiming(self.clock)
        self._timers: FakeTimers | None = None
        self._stack = AsyncExitStack()
        self._runs: list[_TaskRun] = []

    async def __aenter__(self) -> Self:
        broker = await self._stack.enter_async_context(memory_broker(self.clock))
        wire = AppWire(broker)
        self.client = AsyncClient(node=_NODE, wire=wire)
        blocking = Client(node=_NODE, wire=ThreadWire(wire, asyncio.get_running_loop()))
        timers = self.timers if any(isinstance(task, TimerTask) for task in self.app.handlers.values()) else None
        await self._stack.enter_async_context(self.app.through(self.client, blocking, timers=timers))
        try:
            await self.app.hooks.start(self.timing, _HOOKS_MS)
        except BaseException:
            await self._stack.aclose()
            raise
        self._stack.push_async_callback(self.app.hooks.stop, self.timing, _HOOKS_MS)
        await self.app.declare()
        self._runs = [
            _TaskRun(task, self._backend(task), self.timing, self.app, self._stack)
            for task in self.app.handlers.values()
        ]
        self._periodic = PeriodicLoop(self.app, self.client, self.timing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def timers(self) -> FakeTimers:
        """The fake timers of the app."""
        if self._timers is None:
            from tenure.testing.fake_timers import FakeTimers

            self._timers = FakeTimers(self.clock)
        return self._timers

    async def run_until_idle(self, *, jobs_max: int = 10_000) -> int:
        """Fire due ticks and handle claimable jobs until none are left; returns the number of deliveries.

        Raises Invalid after ``jobs_max``, for example where a handler puts the jobs that it handles.
        """
        handled = 0
        while handled <= jobs_max:
            fired = await self._periodic.fire_due(self.timing.wall_ms())
            rounds = [await run.handle_some() for run in self._runs]
            if not fired and not any(rounds):
                return handled
            handled += sum(rounds)
        raise Invalid(f"not idle after {jobs_max} jobs: does a handler put what it handles? Or give jobs_max")

    def advance(self, duration: Duration) -> None:
        """Let time pass for the broker and the app alike."""
        self.clock.advance(ms_of(duration, field="duration"))

    async def jobs(self, queue: str | Handler[Any], state: str | None = None) -> list[QueuedJob]:
        """Return the jobs of a queue that are not done, by seq: all, or those ready, in_flight, delayed or parked.

        For the topic of a timer, return the timers.
        """
        name = queue.queue if isinstance(queue, Handler) else queue
        if isinstance(self.app.handlers.get(name), TimerTask):
            return await self._waiting_timers(name, state)
        found: list[QueuedJob] = []
        for wanted in _STATES if state is None else (state,):
            cursor = None
            while True:
                page = await self.client.jobs(name, state=wanted, limit=_PAGE, cursor=cursor)
                found += [await self._queued(name, row.seq) for row in page.jobs]
                if (cursor := page.next_cursor) is None:
                    break
        return sorted(found, key=lambda job: job.seq)

    async def dead(self, queue: str | Handler[Any]) -> list[DeadLetter]:
        """Return the dead letters of a queue, oldest first; none where it has no dead-letter topic."""
        name = queue.queue if isinstance(queue, Handler) else queue
        if isinstance(self.app.handlers.get(name), TimerTask):
            return [_dead_timer(info) async for info in self._peek(name, "dead")]
        topic = (await self.client.topic(name)).config.dead_letter
        found: list[DeadLetter] = []
        from_seq = 0
        while topic is not None:
            try:
                page = await self.client.diff(topic, from_seq=from_seq, limit=_PAGE, include_tags=True)
            except NotFound:  # no job was ever dead-lettered
                break
            found += [_letter(record) for record in page.records]
            if page.caught_up:
                break
            from_seq = page.next_from_seq
        return found

    async def _waiting_timers(self, topic: str, state: str | None) -> list[QueuedJob]:
        now_ms = self.timing.wall_ms()
        found = [_queued_timer(info, now_ms) async for info in self._peek(topic, "waiting")]
        found += [_queued_timer(info, now_ms) async for info in self._peek(topic, "in_flight")]
        return sorted((job for job in found if state in (None, job.state)), key=lambda job: job.seq)

    async def _peek(self, topic: str, state: State) -> AsyncIterator[TimerInfo]:
        offset = 0
        while page := await self.timers.peek(topic, state=state, limit=_PAGE, offset=offset):
            for info in page:
                yield info
            offset += len(page)

    def _backend(self, task: Handler[Any]) -> Backend:
        link = Link("memory")
        if isinstance(task, TimerTask):
            from tenure.worker.backends.redis import RedisBackend

            return RedisBackend(self.timers, task.options, link=link, node=_NODE)
        return QueueBackend(self.client, task.options, link=link)

    async def _queued(self, queue: str, seq: int) -> QueuedJob:
        job = await self.client.job(queue, seq)
        meta = {} if job.meta is None else _decode(job.meta)
        return QueuedJob(job.seq, _decode(job.data), job.state, job.deliveries, job.tag, meta, job.deliver_at)


class _TaskRun:
    """One task: claims, handles and settles its jobs."""

    def __init__(self, task: Handler[Any], backend: Backend, timing: Timing, app: App, stack: AsyncExitStack) -> None:
        self._options = task.options
        self._backend = backend
        self._timing = timing
        self._acker = backend.acker(batch_max=HELD_MAX, pending_max=HELD_MAX, requests_max=1)
        executor = _executor(task)
        stack.push_async_callback(self._acker.close)
        stack.push_async_callback(executor.close)
        self._delivery = delivery_for(
            task, backend=backend, timing=timing, executor=executor, settle=self._settle, middlewares=app.middlewares
        )

    async def handle_some(self) -> int:
        """Claim as many jobs as the task runs at once, and run them; returns how many."""
        asked_ms = self._timing.now_ms()
        jobs = await self._backend.take(self._options.concurrency, lease_ms=LEASE_MS_MAX)
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                job.deadline_ms = asked_ms + job.lease_ms
                group.create_task(self._handle(job))
        return len(jobs)

    async def _handle(self, job: HeldJob) -> None:
        verdict = await self._delivery.handle(job)
        if verdict is not None:
            await self._settle(job, verdict)
        elif not job.settled:  # in a worker the job comes back when its lease ends, or when the worker stops
            await self._settle(job, Verdict(VerdictKind.NACK, self._options.lease_ms))

    async def _settle(self, job: HeldJob, verdict: Verdict) -> bool:
        job.settled = True
        try:
            if verdict.kind is VerdictKind.ACK:
                return await self._acker.ack(job)
            return await self._acker.nack(
                job, delay_ms=verdict.delay_ms, reason=verdict.reason, dead=verdict.kind is VerdictKind.REJECT
            )
        except LeaseLost:
            return False


def _executor(task: Handler[Any]) -> Executor:
    """Return the executor for tests: async handlers on the loop, plain ones in threads."""
    loop, threads = LoopExecutor(), ThreadExecutor(task.options.concurrency, name=task.queue)
    return MixedExecutor({member: loop if member.is_async else threads for member in task.tasks})


def _queued_timer(info: TimerInfo, now_ms: int) -> QueuedJob:
    data, meta = unpack(info.payload)
    state = "in_flight" if info.state == "in_flight" else "delayed" if info.at_ms > now_ms else "ready"
    return QueuedJob(
        seq=info.version,
        data=_decode(data),
        state=state,
        deliveries=info.deliveries,
        meta={} if meta is None else _decode(meta),
        deliver_at=info.at_ms if state == "delayed" else None,
        timer_id=info.timer_id,
    )


def _dead_timer(info: TimerInfo) -> DeadLetter:
    data, meta = unpack(info.payload)
    return DeadLetter(
        seq=info.version,
        data=_decode(data),
        reason=info.reason,
        deliveries=info.deliveries,
        meta={} if meta is None else _decode(meta),
        timer_id=info.timer_id,
    )


def _letter(record: Any) -> DeadLetter:
    origin = provenance.read(record.meta)
    assert origin is not None, "the broker writes where each dead letter came from"
    meta = {name: value for name, value in _decode(record.meta).items() if name not in provenance.KEYS}
    return DeadLetter(
        seq=origin.seq,
        data=_decode(record.data),
        reason=origin.reason,
        deliveries=origin.deliveries,
        tag=record.tag,
        meta=meta,
    )
