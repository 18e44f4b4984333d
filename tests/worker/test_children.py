"""Processes for handlers: a child that ends costs its own job and no other, and none that cannot start keeps a job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenure.testing import ManualClock, ManualTiming
from tenure.worker.context import Context
from tenure.worker.processes import children as module
from tenure.worker.processes.children import Children
from tenure.worker.processes.frames import Answer, Begun, Done, FromChild, Run
from tenure.worker.processes.process import ChildDied
from tenure.worker.runtime.job import HeldJob
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import NotTried
from tests.worker.task_flow import turns


class FakeChild:
    """A child without a process: begins each job and waits for `finish`, unless it is dead."""

    def __init__(self) -> None:
        self.process = self
        self.began: list[int] = []
        self.is_deaf = False
        """Ends as soon as it is given a job, before it begins it."""
        self._dead = asyncio.Event()
        self._said: asyncio.Queue[FromChild] = asyncio.Queue()

    def send(self, message: Run | Answer) -> None:
        if self.is_deaf:
            self._dead.set()
        if isinstance(message, Run) and not self._dead.is_set():
            self.began.append(message.job.seq)
            self._said.put_nowait(Begun())

    def finish(self) -> None:
        self._said.put_nowait(Done())

    async def read(self, bytes_max: int) -> FromChild:
        reading, dying = asyncio.ensure_future(self._said.get()), asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait((reading, dying), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            raise ChildDied("its process was ended")
        finally:
            reading.cancel()
            dying.cancel()

    def kill(self) -> None:
        self._dead.set()

    async def wait(self) -> int:
        await self._dead.wait()
        return -9

    async def leave(self, timing: object, ms: int) -> None:
        self.kill()

    async def close(self) -> None:
        self.kill()


class Nursery:
    """Children on a clock in the test's hand; what starts, and whether it can, is the test's to say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.clock = ManualClock()
        self.error: Exception | None = None
        self.attempts = 0
        self.started: list[FakeChild] = []
        self.changes = 0
        monkeypatch.setattr(module, "Child", self)
        self.children = Children(
            "jobs:app",
            count,
            timing=ManualTiming(self.clock),
            settings=WorkerSettings(),
            on_change=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    async def start(self, app_name: str, *, settings: WorkerSettings) -> FakeChild:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        self.started.append(FakeChild())
        return self.started[-1]

    async def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.clock.advance(50)
            await turns(10)

    def run(self, seq: int, **fields: Any) -> asyncio.Task[None]:
        job = HeldJob(topic="q", seq=seq, lease_id="l", node="w", data=b"1", **fields)
        return asyncio.create_task(self.children.run(Context(job, None)))  # type: ignore[arg-type]


@asynccontextmanager
async def nursery(
    monkeypatch: pytest.MonkeyPatch, count: int = 1, *, error: Exception | None = None
) -> AsyncIterator[Nursery]:
    at = Nursery(monkeypatch, count)
    at.error = error
    await turns()
    yield at
    await at.children.close()


async def test_a_child_that_ends_behind_its_last_job_fails_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job was given to it, but it had ended: another child begins the job."""
    async with nursery(monkeypatch) as at:
        first = at.run(1)
        await turns()
        at.started[0].finish()
        at.started[0].is_deaf = True
        await first
        second = at.run(2)
        await turns()
        at.started[1].finish()
        await second
        assert [child.began for child in at.started] == [[1], [2]]


async def test_a_child_that_ends_under_a_job_it_began_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nursery(monkeypatch) as at:
        running = at.run(1)
        await turns()
        at.started[0].kill()
        with pytest.raises(ChildDied):
            await running
        await turns()
        assert len(at.started) == 2, "it is replaced"


async def test_a_job_that_ends_its_children_before_they_begin_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nursery(monkeypatch, 3) as at:
        for child in at.started:
            child.is_deaf = True
        with pytest.raises(ChildDied, match="before they begin it"):
            await at.run(1)


async def test_children_that_ended_while_idle_are_not_given_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nursery(monkeypatch) as at:
        for n in range(3):
            at.started[n].kill()
            await turns()
        running = [at.run(1), at.run(2)]
        for done in (1, 2):
            await turns()
            assert at.started[3].began == [1, 2][:done], "the one that lives does both, one after the other"
            at.started[3].finish()
        await asyncio.gather(*running)


async def test_jobs_are_taken_from_when_the_first_child_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nursery(monkeypatch, error=ChildDied("no module named numpy")) as at:
        assert (at.children.is_able, at.children.missing_count, at.changes) == (False, 1, 0)
        at.error = None
        await at.pass_ms(1_000)
        assert (at.children.is_able, at.children.missing_count, at.changes) == (True, 0, 1)


async def test_jobs_that_wait_for_a_child_are_given_back_where_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with nursery(monkeypatch) as at:
        running, waiting, acked = at.run(1), at.run(2), at.run(3, settled=True)
        await turns()
        at.error = OSError("out of memory")
        at.started[0].kill()
        with pytest.raises(ChildDied):
            await running
        with pytest.raises(NotTried):
            await waiting
        assert not at.children.is_able
        assert not acked.done(), "nobody else can have it: it waits on"
        at.error = None
        await at.pass_ms(1_000)
        assert at.children.is_able
        at.started[1].finish()
        await acked


async def test_while_another_child_lives_jobs_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nursery(monkeypatch, 2) as at:
        at.error = OSError("out of memory")
        running = [at.run(1), at.run(2), at.run(3)]
        await turns()
        doomed, living = sorted(at.started, key=lambda child: child.began)
        doomed.kill()
        await turns()
        assert at.children.is_able
        living.finish()
        await turns()
        assert living.began == [2, 3]
        living.finish()
        outcomes = await asyncio.gather(*running, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ChildDied, type(None), type(None)]


async def test_a_start_that_fails_for_hours_is_tried_on_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with nursery(monkeypatch, error=ChildDied("no module named numpy")) as at:
        for _ in range(1_200):
            at.clock.advance(5_000)
            await turns(5)
        assert at.attempts > 1_100, "more often than the bound of a back-off can be doubled"
        assert [record.getMessage() for record in caplog.records] == [
            "no process of jobs:app starts, so its jobs are left to others: no module named numpy"
        ]
        at.error = None
        with caplog.at_level(logging.INFO, "tenure.worker"):
            await at.pass_ms(5_000)
        assert caplog.records[-1].getMessage() == "processes of jobs:app start again"
