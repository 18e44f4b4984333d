"""Verdicts on a wire that loses requests and answers: sent again, and never guessed (faults 25, 27)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest

from tenure import Broker, Closed, Indeterminate, LeaseLost
from tenure.client.client import AsyncClient
from tenure.client.settings import ClientSettings
from tenure.testing import ManualClock, ManualTiming, memory_broker
from tenure.testing.wire import AppWire, LossyWire
from tenure.worker.backends.queue import QueueBackend
from tenure.worker.observing.metrics import QueueStats
from tenure.worker.options import TaskOptions
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.link import Link
from tenure.worker.runtime.settler import Settler
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import ACKED, RETURNED, Verdict, VerdictKind
from tests.worker.task_flow import turns

LEASE_MS = 30_000


class SettlerCase:
    """A settler with three jobs of a claim, whose wire loses by the number of the call."""

    def __init__(self, broker: Broker, clock: ManualClock, wire: LossyWire) -> None:
        self.broker = broker
        self.clock = clock
        self.wire = wire
        self.client = AsyncClient(wire=wire, node="w", settings=ClientSettings(attempts_max=1))
        self.timing = ManualTiming(clock)
        self.stats = QueueStats()
        self.settled: list[int] = []
        self.settler = Settler(
            QueueBackend(self.client, TaskOptions(queue="q"), link=Link("memory")),
            "q",
            timing=self.timing,
            settings=WorkerSettings(),
            stats=self.stats,
            on_settled=lambda job: self.settled.append(job.seq),
        )

    async def jobs(self) -> list[HeldJob]:
        claimed = await AsyncClient(wire=AppWire(self.broker), node="w").claim("q", max_count=3)
        deadline_ms = self.clock.boot_ms() + LEASE_MS
        return [
            HeldJob(topic="q", seq=job.seq, lease_id=job.lease_id or "", node="w", data=b"1", deadline_ms=deadline_ms)
            for job in claimed.jobs
        ]

    async def pass_ms(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.clock.advance(100)
            await turns()

    def counts(self) -> tuple[int, int]:
        queue = self.broker.topic("q").queue
        assert queue is not None
        return queue.ready, queue.in_flight


@asynccontextmanager
async def settler_case(
    *, refuse: Collection[int] = (), lose_request: Collection[int] = (), lose_answer: Collection[int] = ()
) -> AsyncIterator[SettlerCase]:
    clock = ManualClock()
    async with memory_broker(clock) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": LEASE_MS, "dead_letter": "dead"})
        await broker.produce("q", [b"1"] * 3)
        wire = LossyWire(AppWire(broker), refuse=refuse, lose_request=lose_request, lose_answer=lose_answer)
        made = SettlerCase(broker, clock, wire)
        try:
            yield made
        finally:
            await made.settler.close(0)
            await made.client.close()


async def test_verdicts_of_one_turn_go_out_together() -> None:
    async with settler_case() as on:
        for job in await on.jobs():
            on.settler.put(job, ACKED)
        await turns()
        assert (on.wire.count, on.settled, on.counts()) == (1, [1, 2, 3], (0, 0))


async def test_a_verdict_that_could_not_be_sent_is_sent_again() -> None:
    async with settler_case(refuse=range(1, 4)) as on:
        for job in await on.jobs():
            on.settler.put(job, ACKED)
        await on.pass_ms(5_000)
        assert (on.settled, on.counts(), on.stats.indeterminate) == ([1, 2, 3], (0, 0), 0)


async def test_it_is_not_sent_any_more_once_the_lease_is_over() -> None:
    async with settler_case(refuse=range(1, 1_000)) as on:
        (first, *_) = await on.jobs()
        on.settler.put(first, ACKED)
        await on.pass_ms(LEASE_MS + 2_000)
        sent = on.wire.count
        await on.pass_ms(5_000)
        assert (on.wire.count, on.settled, on.stats.indeterminate) == (sent, [1], 0)


async def test_fault_27_an_ack_whose_answer_was_lost_is_unknown_when_the_repeat_finds_the_lease_ended() -> None:
    async with settler_case(lose_answer=[1]) as on:
        (first, *_) = await on.jobs()
        on.settler.put(first, ACKED)
        await on.pass_ms(3_000)
        assert on.settled == [1]
        assert on.stats.indeterminate == 1, "it may have been our own first copy: it was, but who knows"
        assert on.stats.leases_lost == 0


async def test_an_ack_that_was_lost_on_its_way_is_made_good_by_the_repeat() -> None:
    async with settler_case(lose_request=[1]) as on:
        jobs = await on.jobs()
        for job in jobs:
            on.settler.put(job, ACKED)
        await on.pass_ms(3_000)
        assert (on.counts(), on.stats.indeterminate) == ((0, 0), 0)


async def test_who_waits_for_a_verdict_hears_what_came_of_it() -> None:
    async with settler_case(lose_answer=[3]) as on:
        first, second, third = await on.jobs()
        assert await on.settler.settle(first, ACKED)
        await on.broker.nack("q", node="w", seqs=[2])
        assert not await on.settler.settle(second, ACKED), "it is another's"
        waiting = asyncio.ensure_future(on.settler.settle(third, RETURNED))
        await on.pass_ms(3_000)
        with pytest.raises(Indeterminate):
            await waiting


async def test_a_reject_is_a_dead_letter() -> None:
    async with settler_case() as on:
        (first, *_) = await on.jobs()
        assert await on.settler.settle(first, Verdict(VerdictKind.REJECT, None, "no good"))
        assert on.broker.topic("dead").count == 1


async def test_a_verdict_after_the_end_is_given_up_and_not_raised() -> None:
    async with settler_case() as on:
        (first, *_) = await on.jobs()
        await on.settler.close(0)
        on.settler.put(first, ACKED)
        assert on.settled == [1]


async def test_who_waits_hears_of_the_end_also_where_the_verdict_waits_for_its_repeat() -> None:
    async with settler_case(refuse=range(1, 1_000)) as on:
        first, second, _ = await on.jobs()
        waiting = asyncio.ensure_future(on.settler.settle(first, ACKED))
        on.settler.put(second, ACKED)
        await turns()
        await on.settler.close(0)
        with pytest.raises(Closed):
            await waiting
        assert sorted(on.settled) == [1, 2]


class _SilentAcker:
    """Answers nothing until its end, and then only if it ``ends`` what it was given."""

    sent_count = 0

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends
        self.answers: list[asyncio.Future[bool]] = []

    def settle(self, seq: int, lease_id: str) -> asyncio.Future[bool]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    async def close(self, *, deadline_ms: int) -> None:
        for answer in self.answers:
            if self._ends and not answer.done():
                answer.set_exception(Indeterminate("it was on its way"))


@pytest.mark.parametrize("ends", [True, False])
async def test_who_waits_hears_of_the_end_also_where_the_verdict_is_on_its_way(ends: bool) -> None:
    async with settler_case() as on:
        (first, *_) = await on.jobs()
        on.settler._acker = acker = _SilentAcker(ends=ends)  # type: ignore[assignment]
        waiting = asyncio.ensure_future(on.settler.settle(first, ACKED))
        await turns()
        await on.settler.close(0)
        with pytest.raises(Indeterminate):
            await waiting
        for late in acker.answers if not ends else ():
            late.set_result(True)
        await turns()
        assert (on.settled, on.stats.indeterminate) == ([1], 1)
        assert on.timing.sleeping == 0, "and nothing goes on"


async def test_it_is_not_repeated_where_the_lease_ends_before_the_repeat_is_due() -> None:
    async with settler_case(refuse=[1]) as on:
        (first, *_) = await on.jobs()
        first.deadline_ms = on.clock.boot_ms() + 10  # shorter than the shortest wait before a repeat
        waiting = asyncio.ensure_future(on.settler.settle(first, ACKED))
        await turns()
        await on.pass_ms(2_000)
        assert (on.wire.count, on.settled) == (1, [1])
        with pytest.raises(LeaseLost):
            await waiting
