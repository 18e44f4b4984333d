"""The line of a process for suspects: who runs beside whom, who waits, and when it ends."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from tenure.testing import ManualClock, ManualTiming
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.pace import Share
from tenure.worker.runtime.suspects import SuspectNotices, SuspectSlots
from tenure.worker.settings import WorkerSettings
from tests.worker.task_flow import turns

SETTINGS = WorkerSettings(suspects_max=3, suspects_wait_ms=30_000, suspects_idle_ms=10_000)


class Part:
    """One task: what waits, runs and was given back, by seq."""

    def __init__(self, slots: SuspectSlots) -> None:
        self._slots = slots
        self.is_able = True
        self.running: list[HeldJob] = []
        self.returned: list[int] = []
        self._waiting: deque[HeldJob] = deque()
        self._share = Share(1, ready=self._ready, start=self._start, freed=lambda: None, give_back=self._give_back)
        slots.add(self._share)

    def _ready(self) -> bool:
        while self._waiting and self._waiting[0].lost:
            self._waiting.popleft()
        return self.is_able and bool(self._waiting)

    def _start(self) -> None:
        self.running.append(self._waiting.popleft())

    def _give_back(self, job: HeldJob) -> None:
        self._waiting.remove(job)
        job.settled = True
        self.returned.append(job.seq)

    def arrive(self, *lost_counts: int, first: int = 1) -> list[HeldJob]:
        jobs = [
            HeldJob(topic="q", seq=seq, lease_id="l", node="n", data=b"1", lost_count=lost_count)
            for seq, lost_count in enumerate(lost_counts, first)
        ]
        self._waiting.extend(jobs)
        self._slots.enter(self._share, jobs)
        self._slots.fill(self._share)
        return jobs

    def end(self, *seqs: int) -> None:
        for seq in seqs:
            self.running.remove(next(job for job in self.running if job.seq == seq))
            self._slots.free()
        self._slots.fill(self._share)

    @property
    def seqs(self) -> list[int]:
        return [job.seq for job in self.running]


class Bench:
    """Slots for suspects on a clock in the test's hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timing = ManualTiming(self.clock)
        self.slots = SuspectSlots(timing=self.timing, settings=SETTINGS)
        self.part = Part(self.slots)

    @asynccontextmanager
    async def during(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(work)
        await turns()
        yield task
        task.cancel()
        await asyncio.wait((task,))

    async def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 500):
            self.clock.advance(500)
            await turns(5)


def test_jobs_that_were_lost_once_run_together_up_to_the_limit() -> None:
    part = Bench().part
    part.arrive(1, 1, 1, 1, 1)
    assert part.seqs == [1, 2, 3]
    part.end(2)
    assert part.seqs == [1, 3, 4]


def test_a_job_that_was_lost_twice_runs_alone() -> None:
    part = Bench().part
    part.arrive(2, 1, 1)
    assert part.seqs == [1]
    part.end(1)
    assert part.seqs == [2, 3]


def test_one_that_runs_alone_waits_for_those_before_it_and_lets_none_behind_it_pass() -> None:
    part = Bench().part
    part.arrive(1, 2, 1, 1)
    assert part.seqs == [1]
    part.end(1)
    assert part.seqs == [2]
    part.end(2)
    assert part.seqs == [3, 4]


def test_two_that_run_alone_run_after_each_other() -> None:
    part = Bench().part
    part.arrive(3, 2)
    assert part.seqs == [1]
    part.end(1)
    assert part.seqs == [2]


def test_the_order_is_that_of_arrival_over_all_tasks() -> None:
    bench = Bench()
    other = Part(bench.slots)
    bench.part.arrive(1, 1)
    other.arrive(2, first=10)
    bench.part.arrive(1, first=20)
    assert (bench.part.seqs, other.seqs) == ([1, 2], [])
    bench.part.end(1, 2)
    assert (bench.part.seqs, other.seqs) == ([], [10])
    other.end(10)
    assert bench.part.seqs == [20]


def test_a_task_that_cannot_run_holds_up_no_other() -> None:
    bench = Bench()
    other = Part(bench.slots)
    other.is_able = False
    other.arrive(2)
    bench.part.arrive(1, 1)
    assert (bench.part.seqs, other.seqs) == ([1, 2], [])


def test_a_job_that_was_lost_while_it_waits_is_passed_over() -> None:
    part = Bench().part
    first, second, _ = part.arrive(2, 2, 1)
    second.lost = True
    part.end(first.seq)
    assert part.seqs == [3]


def test_room_is_what_can_run_beside_the_others() -> None:
    bench = Bench()
    assert bench.slots.room() == 3
    bench.part.arrive(1)
    assert bench.slots.room() == 2
    bench.part.arrive(2, first=2)
    assert bench.slots.room() == 0, "one waits to run alone"
    bench.part.end(1)
    assert bench.slots.room() == 0, "one runs alone"
    bench.part.end(2)
    assert bench.slots.room() == 3
    bench.part.arrive(1, 1, 1, 1, first=3)
    assert bench.slots.room() == 0


async def test_what_waits_too_long_behind_a_long_one_is_given_back() -> None:
    bench = Bench()
    async with bench.during(bench.slots.return_overdue()):
        bench.part.arrive(2, 1, 1)
        await bench.pass_ms(10_000)
        bench.part.arrive(1, first=4)
        await bench.pass_ms(19_500)
        assert bench.part.returned == []
        await bench.pass_ms(500)
        assert bench.part.returned == [2, 3]
        await bench.pass_ms(10_000)
        assert bench.part.returned == [2, 3, 4]
        assert bench.part.seqs == [1], "what runs goes on"


async def test_it_is_idle_after_a_while_without_a_suspect() -> None:
    bench = Bench()
    async with bench.during(bench.slots.until_idle()) as idle:
        await bench.pass_ms(8_000)
        bench.part.arrive(1)
        await bench.pass_ms(60_000)
        assert not idle.done()
        bench.part.end(1)
        await bench.pass_ms(9_500)
        assert not idle.done()
        await bench.pass_ms(3_000)
        assert idle.done()


async def test_it_is_not_idle_while_suspects_wait_at_the_broker() -> None:
    bench = Bench()
    bench.slots.hear("mail", 2)
    bench.slots.hear("pages", 0)
    async with bench.during(bench.slots.until_idle()) as idle:
        await bench.pass_ms(60_000)
        assert not idle.done()
        bench.slots.hear("mail", 0)
        await bench.pass_ms(13_000)
        assert idle.done()


def test_a_notice_is_sent_once_for_many_that_are_heard() -> None:
    clock = ManualClock()
    reading, writing = os.pipe2(os.O_NONBLOCK)
    notices = SuspectNotices(writing, timing=ManualTiming(clock), settings=SETTINGS)
    notices.hear("mail", 0)
    for _ in range(10):
        notices.hear("mail", 3)
    assert os.read(reading, 100) == b"!"
    clock.advance(SETTINGS.suspects_notice_ms)
    notices.hear("mail", 3)
    assert os.read(reading, 100) == b"!"
    os.close(reading)
    clock.advance(SETTINGS.suspects_notice_ms)
    notices.hear("mail", 3)  # the supervisor is gone
    os.close(writing)


def test_a_worker_without_a_supervisor_sends_no_notice() -> None:
    SuspectNotices(None, timing=ManualTiming(ManualClock()), settings=SETTINGS).hear("mail", 3)
