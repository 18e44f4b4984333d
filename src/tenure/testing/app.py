"""`AppTester`: your app, its handlers and its schedules against the real broker in memory, on a clock in your hand.

Jobs go the same way as in a worker: claimed, decoded, through middlewares and executors, to a verdict that the broker
is told. Nothing waits: back-offs, delays and schedules pass when the test says so.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from tenure.client.client import AsyncClient, Client
from tenure.client.replies import Job
from tenure.core.config import LEASE_MS_MAX
from tenure.errors import Invalid, NotFound
from tenure.testing.clock import ManualClock
from tenure.testing.memory import memory_broker
from tenure.testing.timing import ManualTiming
from tenure.testing.wire import AppWire, ThreadWire
from tenure.worker.app import App
from tenure.worker.durations import Duration, ms_of
from tenure.worker.executors import LoopPlaces, ThreadPlaces
from tenure.worker.handling import Executor, Handling
from tenure.worker.job import HeldJob
from tenure.worker.periodic import PeriodicLoop
from tenure.worker.task import Task
from tenure.worker.verdict import Verdict, VerdictKind

__all__ = ["AppTester", "DeadLetter", "QueuedJob"]

_NODE: Final = "app-tester"
_STATES: Final = ("ready", "in_flight", "delayed", "parked")
_PAGE: Final = 1_000
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


class DeadLetter(msgspec.Struct, frozen=True):
    """A job that was given up, with its payload and why."""

    seq: int
    data: Any
    reason: str
    deliveries: int
    tag: str | None = None
    meta: dict[str, Any] = {}


class AppTester:
    """Runs an app in a test. Inside the block, the app's puts go to a broker in memory; afterwards it is as before.

    Leases are taken for a day, as if heartbeats renewed them. Handlers of processes run in threads of the test.
    """

    def __init__(self, app: App, clock: ManualClock | None = None) -> None:
        self.app = app
        self.clock = clock or ManualClock()
        self.timing = ManualTiming(self.clock)
        self._stack = AsyncExitStack()
        self._handlings: dict[str, Handling] = {}

    async def __aenter__(self) -> Self:
        broker = await self._stack.enter_async_context(memory_broker(self.clock))
        wire = AppWire(broker)
        self.client = AsyncClient(node=_NODE, wire=wire)
        blocking = Client(node=_NODE, wire=ThreadWire(wire, asyncio.get_running_loop()))
        await self._stack.enter_async_context(self.app.through(self.client, blocking))
        await self.app.declare()
        self._handlings = {queue: self._handling(task) for queue, task in self.app.tasks.items()}
        self._periodic = PeriodicLoop(self.app, self.client, self.timing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run_until_idle(self, *, jobs_max: int = 10_000) -> int:
        """Fire what is due and handle everything claimable, until there is nothing more; returns how many deliveries.

        Raises Invalid after ``jobs_max``: a handler that puts what it handles never ends.
        """
        handled = 0
        while handled <= jobs_max:
            fired = await self._periodic.fire_due(self.timing.wall_ms())
            rounds = [await self._handle_some(handling) for handling in self._handlings.values()]
            if not fired and not any(rounds):
                return handled
            handled += sum(rounds)
        raise Invalid(f"not idle after {jobs_max} jobs: does a handler put what it handles? Or give jobs_max")

    def advance(self, duration: Duration) -> None:
        """Let time pass for the broker and the app alike."""
        self.clock.advance(ms_of(duration, field="duration"))

    async def jobs(self, queue: str | Task[Any], state: str | None = None) -> list[QueuedJob]:
        """The jobs of a queue that are not done, by seq: all, or those that are ready, in_flight, delayed or parked."""
        name = queue.queue if isinstance(queue, Task) else queue
        found: list[QueuedJob] = []
        for wanted in _STATES if state is None else (state,):
            cursor = None
            while True:
                page = await self.client.jobs(name, state=wanted, limit=_PAGE, cursor=cursor)
                found += [await self._queued(name, row.seq) for row in page.jobs]
                if (cursor := page.next_cursor) is None:
                    break
        return sorted(found, key=lambda job: job.seq)

    async def dead(self, queue: str | Task[Any]) -> list[DeadLetter]:
        """What was given up of a queue, in the order of its giving up; without a dead-letter topic, nothing is kept."""
        name = queue.queue if isinstance(queue, Task) else queue
        topic = (await self.client.topic(name)).config["dead_letter"]
        found: list[DeadLetter] = []
        from_seq = 0
        while topic is not None:
            try:
                page = await self.client.diff(topic, from_seq=from_seq, limit=_PAGE, include_tags=True)
            except NotFound:  # nothing was ever given up
                break
            found += [_letter(record) for record in page.records]
            if page.caught_up:
                break
            from_seq = page.next_from_seq
        return found

    def _handling(self, task: Task[Any]) -> Handling:
        executor: Executor = LoopPlaces() if task.is_async else ThreadPlaces(task.options.concurrency, name=task.queue)
        self._stack.push_async_callback(executor.close)
        return Handling(
            task,
            client=self.client,
            timing=self.timing,
            executor=executor,
            settle=self._settle,
            middlewares=self.app.middlewares,
        )

    async def _handle_some(self, handling: Handling) -> int:
        """Claim as many as the task runs at once, and run them; returns how many."""
        options, asked_ms = handling.task.options, self.timing.now_ms()
        claimed = await self.client.claim(options.queue, max_count=options.concurrency, lease_ms=LEASE_MS_MAX)
        held = [_held(options.queue, job, asked_ms) for job in claimed.jobs]
        async with asyncio.TaskGroup() as group:
            for job in held:
                group.create_task(self._handle(handling, job))
        return len(held)

    async def _handle(self, handling: Handling, job: HeldJob) -> None:
        verdict = await handling.handle(job)
        if verdict is not None:
            await self._settle(job, verdict)
        elif not job.settled:  # what a worker leaves alone comes back when its lease ends, or when it stops
            await self._settle(job, Verdict(VerdictKind.NACK, handling.task.options.lease_ms))

    async def _settle(self, job: HeldJob, verdict: Verdict) -> bool:
        job.settled = True
        if verdict.kind is VerdictKind.ACK:
            return bool((await self.client.ack(job.topic, [job.seq], lease_ids=[job.lease_id])).count)
        settled = await self.client.nack(
            job.topic,
            [job.seq],
            lease_ids=[job.lease_id],
            delay_ms=verdict.delay_ms,
            reason=verdict.reason,
            dead=verdict.kind is VerdictKind.REJECT,
        )
        return bool(settled.count)

    async def _queued(self, queue: str, seq: int) -> QueuedJob:
        job = await self.client.job(queue, seq)
        meta = {} if job.meta is None else _decode(job.meta)
        return QueuedJob(job.seq, _decode(job.data), job.state, job.deliveries, job.tag, meta, job.deliver_at)


def _held(queue: str, job: Job, asked_ms: int) -> HeldJob:
    assert job.lease_id is not None, "a claim that does not ack by itself has a lease"
    return HeldJob(
        topic=queue,
        seq=job.seq,
        lease_id=job.lease_id,
        node=_NODE,
        data=bytes(job.data),
        meta=None if job.meta is None else bytes(job.meta),
        tag=job.tag,
        ts=job.ts,
        deliveries=job.deliveries,
        deadline_ms=asked_ms + LEASE_MS_MAX,
    )


def _letter(record: Any) -> DeadLetter:
    meta = _decode(record.meta)
    meta.pop("$dead_letter_from", None)
    return DeadLetter(
        seq=meta.pop("$dead_letter_src_seq", record.seq),
        data=_decode(record.data),
        reason=meta.pop("$dead_letter_reason", ""),
        deliveries=meta.pop("$dead_letter_deliveries", 0),
        tag=record.tag,
        meta=meta,
    )
