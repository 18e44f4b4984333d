"""What is held is kept, by the length of its own lease; what is lost is known before another can have it."""

from __future__ import annotations

import asyncio

import pytest

from tests.worker.heartbeat_case import LEASE_MS, beating
from tests.worker.task_flow import turns

LONG_MS = 60_000


async def test_a_job_is_extended_at_each_third_of_its_lease() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        await at.advance(4 * LEASE_MS)
        assert len(at.backend.asked) in (12, 13)
        assert at.lost == []
        assert at.ahead_ms(job) <= 0


async def test_our_deadline_is_counted_from_before_the_request_and_not_from_its_answer() -> None:
    """The broker counts from when the request came, which may be long before its answer."""
    async with beating() as at:
        (job,) = at.hold(1)
        at.backend.gate = asyncio.Event()
        await at.advance(LEASE_MS // 2)
        ((asked_ms, _, _),) = at.backend.asked
        at.backend.gate.set()
        await turns()
        assert job.deadline_ms == asked_ms + LEASE_MS
        assert at.timing.now_ms() > asked_ms


async def test_what_a_handler_asked_for_is_not_shortened_by_a_question_about_all_held() -> None:
    """As after a reconnect: the broker would set all deadlines to the task's lease."""
    async with beating() as at:
        long, plain = at.hold(1, 2)
        assert await at.extender.extend_one(long, lease_ms=LONG_MS)
        await at.heartbeat.extend_all()
        assert [at.ahead_ms(job) for job in (long, plain)] == [0, 0]
        assert long.deadline_ms - at.timing.now_ms() == LONG_MS
        assert plain.deadline_ms - at.timing.now_ms() == LEASE_MS, "each by its own length"


async def test_our_deadline_never_ends_after_the_brokers_whatever_was_asked_for() -> None:
    async with beating() as at:
        jobs = at.hold(*range(6))
        for job, lease_ms in zip(jobs, (1, LEASE_MS // 3, LEASE_MS, LEASE_MS + 1, LONG_MS, 0), strict=True):
            assert await at.extender.extend_one(job, lease_ms=lease_ms)
        for _ in range(100):
            await at.advance(LEASE_MS // 10)
            assert max(map(at.ahead_ms, jobs)) <= 0
        assert at.lost == [], "and none is lost, also where less than the task's lease was asked for"


async def test_a_job_with_a_long_lease_is_asked_for_as_often_as_any_so_that_its_loss_is_known_as_soon() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        assert await at.extender.extend_one(job, lease_ms=LONG_MS)
        at.backend.skips.add(1)
        await at.advance(LEASE_MS // 2)
        assert at.lost == [job]
        assert job.lost


@pytest.mark.parametrize("is_first_answered", [True, False])
@pytest.mark.parametrize("is_long_first", [True, False])
async def test_of_two_extends_at_once_the_shorter_counts_because_the_broker_may_apply_it_last(
    is_first_answered: bool, is_long_first: bool
) -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        gates, asked = [asyncio.Event(), asyncio.Event()], []
        for gate, is_long in zip(gates, (is_long_first, not is_long_first), strict=True):
            at.backend.gate = gate
            asked.append(asyncio.create_task(at.extender.extend([job], lease_ms=LONG_MS if is_long else LEASE_MS)))
            await turns()
        for gate in gates if is_first_answered else reversed(gates):
            gate.set()
            await turns()
            assert job.deadline_ms - at.timing.now_ms() == LEASE_MS
        assert [await answer for answer in asked] == [[], []]


async def test_a_handler_that_asks_while_a_heartbeat_is_on_its_way_gets_what_it_asked_for() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        gate = at.backend.gate = asyncio.Event()
        beat = asyncio.create_task(at.heartbeat.extend_all())
        await turns()
        asked = asyncio.create_task(at.extender.extend_one(job, lease_ms=LONG_MS))
        await turns()
        at.backend.gate = None
        gate.set()
        assert await asked
        await beat
        assert job.deadline_ms - at.timing.now_ms() == LONG_MS
        assert at.ahead_ms(job) == 0


async def test_what_the_broker_skips_while_its_verdict_is_unanswered_is_asked_for_once() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        job.settled = True
        at.backend.skips.add(1)
        await at.advance(LEASE_MS - 50)
        assert len(at.backend.asked) == 1
        assert len(at.heartbeat) == 1, "it is held until its verdict is answered"
        assert (at.lost, job.lost, at.stats.leases_lost) == ([], False, 0)
        assert job.deadline_ms > at.timing.now_ms(), "and its verdict may be sent again"


async def test_what_runs_out_while_its_verdict_is_unanswered_is_not_lost_but_left_to_the_answer() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        at.backend.is_away = True
        job.settled = True
        await at.advance(LEASE_MS + 100)
        assert (at.lost, job.lost, at.stats.leases_lost) == ([], False, 0)
        assert len(at.heartbeat) == 0


async def test_what_nobody_confirms_in_time_is_lost() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        at.backend.is_away = True
        await at.advance(LEASE_MS - 50)
        assert at.lost == []
        await at.advance(100)
        assert (at.lost, job.lost, at.stats.leases_lost) == ([job], True, 1)


async def test_a_batch_is_no_larger_than_agreed_and_of_one_length() -> None:
    async with beating(batch_max=2) as at:
        first, *_ = at.hold(1, 2, 3, 4)
        assert await at.extender.extend_one(first, lease_ms=LONG_MS)
        at.backend.asked.clear()
        await at.heartbeat.extend_all()
        assert [(seqs, lease_ms) for _, seqs, lease_ms in at.backend.asked] == [
            ([1], LONG_MS),
            ([2, 3], LEASE_MS),
            ([4], LEASE_MS),
        ]


async def test_nothing_is_asked_about_what_is_not_held_any_more() -> None:
    async with beating() as at:
        (job,) = at.hold(1)
        at.heartbeat.drop(job)
        assert await at.heartbeat.extend([job])
        assert at.backend.asked == []
