"""What the tests of handling share: a held job, a client that answers from a list, and an executor on the loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import msgspec

from tenure.contract.replies import Delivery, Extended, JobInfo
from tenure.errors import NotFound, TenureError
from tenure.testing import ManualClock
from tenure.testing.context import ManualTiming
from tenure.worker.app import App
from tenure.worker.backends.queue import QueueSide
from tenure.worker.context import Context
from tenure.worker.middleware import Middleware
from tenure.worker.runtime.delivery import Handling
from tenure.worker.runtime.handler import Handler
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.task import Task
from tenure.worker.verdict import Verdict


class OnLoop:
    """Runs handlers where they are."""

    def run(self, task: Handler[Any], payload: Any, ctx: Context) -> Coroutine[Any, Any, object]:
        running: Coroutine[Any, Any, object] = task.invoke(payload, ctx)
        return running

    async def close(self) -> None: ...


class Broker:
    """A client as far as handling asks it: the past of a job, and extensions."""

    def __init__(self) -> None:
        self.history: list[Delivery] = []
        self.asked = 0
        self.fails: TenureError | None = None
        self.skips = False
        self.extended: list[int | None] = []

    def delivery(self, end: str, reason: str | None = None) -> None:
        self.history.append(Delivery(f"lease_{len(self.history)}", "w", 0, 1, end, reason))

    async def job(self, topic: str, seq: int) -> JobInfo:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        data, history = msgspec.Raw(b"1"), list(self.history)
        return JobInfo(topic=topic, seq=seq, ts=0, data=data, state="in_flight", deliveries=1, history=history)

    async def extend(self, topic: str, seqs: list[int], *, lease_ms: int | None, **_: Any) -> Extended:
        self.extended.append(lease_ms)
        return Extended(topic, {}, seqs) if self.skips else Extended(topic, dict.fromkeys(seqs, 1))


class Bench:
    """One task on a bench: `handle` a job of it and look what was settled."""

    def __init__(self, task: Task[Any], *middlewares: Middleware) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.broker = Broker()
        self.settled: list[Verdict] = []
        self.taken = True
        self.handling = Handling(
            task,
            side=QueueSide(self.broker, task.options, link=Link("nowhere")),  # type: ignore[arg-type]
            timing=self.timing,
            executor=OnLoop(),
            settle=self._settle,
            middlewares=middlewares,
        )

    def job(self, data: bytes = b"1", **fields: Any) -> HeldJob:
        deadline_ms = self.timing.now_ms() + 30_000
        return HeldJob(
            topic=self.handling.task.queue,
            seq=7,
            lease_id="lease_1",
            node="w",
            data=data,
            **{"deadline_ms": deadline_ms, **fields},
        )

    async def handle(self, data: bytes = b"1", **fields: Any) -> Verdict | None:
        return await self.handling.handle(self.job(data, **fields))

    async def _settle(self, job: HeldJob, verdict: Verdict) -> bool:
        self.settled.append(verdict)
        return self.taken


def gone() -> NotFound:
    return NotFound("no such job")


def fresh_app(*middlewares: Middleware) -> App:
    return App("http://127.0.0.1:1", middlewares=middlewares)
