"""`OneTask`: the delivery of one task, with a fake client and an executor on the loop."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.contract import replies
from tenure.contract.replies import Extended, JobInfo
from tenure.errors import NotFound, TenureError
from tenure.testing import ManualClock
from tenure.testing.context import ManualTiming
from tenure.worker.app import App
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.middleware import Middleware
from tenure.worker.processes.executors import LoopExecutor
from tenure.worker.runtime.delivery import Delivery
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.task import Task
from tenure.worker.verdict import Verdict


class Broker:
    """A client as far as delivery asks it: the past of a job, and extensions."""

    def __init__(self) -> None:
        self.history: list[replies.Delivery] = []
        self.asked = 0
        self.fails: TenureError | None = None
        self.skips = False
        self.extended: list[int | None] = []

    def delivery(self, end: str, reason: str | None = None) -> None:
        self.history.append(replies.Delivery(f"lease_{len(self.history)}", "w", 0, 1, end, reason))

    async def job(self, topic: str, seq: int) -> JobInfo:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        data, history = msgspec.Raw(b"1"), list(self.history)
        return JobInfo(topic=topic, seq=seq, ts=0, data=data, state="in_flight", deliveries=1, history=history)

    async def extend(self, topic: str, seqs: list[int], *, lease_ms: int | None, **_: Any) -> Extended:
        self.extended.append(lease_ms)
        return Extended(topic, {}, seqs) if self.skips else Extended(topic, dict.fromkeys(seqs, 1))


class OneTask:
    """One task without a worker: `handle` a job of it, and see what was settled."""

    def __init__(self, task: Task[Any], *middlewares: Middleware) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.broker = Broker()
        self.settled: list[Verdict] = []
        self.taken = True
        self.delivery = Delivery(
            task,
            backend=QueueBackend(self.broker, task.options, link=Link("nowhere")),  # type: ignore[arg-type]
            timing=self.timing,
            executor=LoopExecutor(),
            settle=self._settle,
            middlewares=middlewares,
        )

    def job(self, data: bytes = b"1", **fields: Any) -> HeldJob:
        deadline_ms = self.timing.now_ms() + 30_000
        return HeldJob(
            topic=self.delivery.task.queue,
            seq=7,
            lease_id="lease_1",
            node="w",
            data=data,
            **{"deadline_ms": deadline_ms, **fields},
        )

    async def handle(self, data: bytes = b"1", **fields: Any) -> Verdict | None:
        return await self.delivery.handle(self.job(data, **fields))

    async def _settle(self, job: HeldJob, verdict: Verdict) -> bool:
        self.settled.append(verdict)
        return self.taken


def gone() -> NotFound:
    return NotFound("no such job")


def fresh_app(*middlewares: Middleware) -> App:
    return App("http://127.0.0.1:1", middlewares=middlewares)
