"""`Acker` against a real server, over a wire that a test can hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure.client.batching.acker import Acker
from tenure.client.batching.settings import AckerSettings
from tenure.contract.replies import Extended, Settled
from tenure.errors import Closed, Indeterminate, Invalid, LeaseLost, NotFound, Overloaded
from tests.client.held_clients import held_client


async def test_acks_of_one_turn_go_out_together(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(40, max_count=10)
        assert await asyncio.gather(*(acker.ack(job) for job in jobs)) == [True] * 40
        assert b.wire.sizes == [40]
        counts = await b.counts()
        assert (counts.ready, counts.in_flight) == (0, 0)


async def test_acks_that_come_during_a_request_make_up_the_next_one(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(10)
        b.wire.hold()
        first = acker.settle(jobs[0].seq, jobs[0].lease_id or "")
        await b.wire.arrived()
        others = []
        for job in jobs[1:]:
            others.append(acker.settle(job.seq, job.lease_id or ""))
            await asyncio.sleep(0)
        b.wire.release()
        await asyncio.gather(first, *others)
        assert b.wire.sizes == [1, 9]


async def test_a_request_has_a_thousand_seqs_at_most(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(2_500)
        futures = [acker.settle(job.seq, job.lease_id or "") for job in jobs]
        await acker.flush()
        assert b.wire.sizes == [1_000, 1_000, 500]
        assert all(future.result() is True for future in futures)


async def test_what_is_skipped_is_lost_and_its_neighbours_are_not(server):
    """Faults 25 and 40."""
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(3)
        await b.client.nack(b.topic, [jobs[1].seq])
        again = (await b.client.claim(b.topic)).jobs[0]
        outcomes = await asyncio.gather(*(acker.ack(job) for job in jobs), return_exceptions=True)
        assert [outcome if outcome is True else type(outcome) for outcome in outcomes] == [True, LeaseLost, True]
        assert await acker.ack(again) is True


async def test_a_stale_and_a_new_lease_of_one_job_are_told_apart(server):
    """Fault 24."""
    async with held_client(server) as b, b.acker() as acker:
        (stale,) = await b.jobs(1)
        await b.client.nack(b.topic, [stale.seq])
        fresh = (await b.client.claim(b.topic)).jobs[0]
        b.wire.clear()
        lost, acked = await asyncio.gather(acker.ack(stale), acker.ack(fresh), return_exceptions=True)
        assert isinstance(lost, LeaseLost)
        assert acked is True
        assert b.wire.sizes == [1, 1]


async def test_skipped_by_a_repeat_is_indeterminate(server):
    """Fault 27."""
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(2)
        b.wire.lose_answers(1)
        outcomes = await asyncio.gather(*(acker.ack(job) for job in jobs), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Indeterminate}
        assert (await b.counts()).in_flight == 0


async def test_nacks_of_equal_parameters_go_together_and_others_beside_them(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(7)
        await asyncio.gather(
            *(acker.nack(job, delay_ms=60_000, reason="later") for job in jobs[:3]),
            *(acker.nack(job) for job in jobs[3:5]),
            *(acker.ack(job) for job in jobs[5:]),
        )
        assert sorted(b.wire.sizes) == [2, 2, 3]
        counts = await b.counts()
        assert (counts.ready, counts.delayed, counts.in_flight) == (2, 3, 0)
        assert (await b.client.job(b.topic, jobs[0].seq)).history[-1].reason == "later"


async def test_extends_answer_the_new_deadline(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(3)
        await b.client.ack(b.topic, [jobs[2].seq])
        b.wire.clear()
        first, second, lost = await asyncio.gather(
            *(acker.extend(job, lease_ms=600_000) for job in jobs), return_exceptions=True
        )
        assert first == second
        assert isinstance(first, int)
        assert first > (jobs[0].deadline or 0) + 500_000
        assert isinstance(lost, LeaseLost)
        assert b.wire.sizes == [3]


async def test_few_requests_are_in_flight_however_many_kinds_there_are(server):
    async with held_client(server) as b, b.acker(requests_max=2) as acker:
        jobs = await b.jobs(6)
        b.wire.hold()
        nacks = [asyncio.create_task(acker.nack(job, delay_ms=1_000 + n)) for n, job in enumerate(jobs)]
        await b.wire.arrived()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(b.wire.sizes) == 2
        b.wire.release()
        assert await asyncio.gather(*nacks) == [True] * 6
        assert acker._batches == {}


async def test_a_failing_request_fails_its_jobs_each_with_an_error_of_its_own(server):
    async with held_client(server) as b, Acker(b.client, "no-such-queue") as acker:
        futures = [acker.settle(seq, "lease_1") for seq in (1, 2)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {NotFound}
        assert outcomes[0] is not outcomes[1]


async def test_a_cancelled_caller_does_not_disturb_the_others(server):
    async with held_client(server) as b, b.acker() as acker:
        jobs = await b.jobs(2)
        b.wire.hold()
        tasks = [asyncio.create_task(acker.ack(job)) for job in jobs]
        await b.wire.arrived()
        tasks[0].cancel()
        b.wire.release()
        assert await tasks[1] is True
        assert tasks[0].cancelled()
        assert (await b.counts()).in_flight == 0


async def test_more_than_may_be_pending_is_overloaded(server):
    async with held_client(server) as b, b.acker(pending_max=2) as acker:
        jobs = await b.jobs(3)
        futures = [acker.settle(job.seq, job.lease_id or "") for job in jobs[:2]]
        with pytest.raises(Overloaded, match=r"too many acks are pending \(limit pending_max\): claim fewer"):
            acker.settle(jobs[2].seq, jobs[2].lease_id or "")
        with pytest.raises(Overloaded):
            acker.release(jobs[2].seq, jobs[2].lease_id or "")
        await asyncio.gather(*futures)
        assert await acker.ack(jobs[2]) is True


async def test_a_job_that_its_claim_acked_cannot_be_settled(server):
    async with held_client(server) as b, b.acker() as acker:
        await b.client.produce(b.topic, [1])
        job = (await b.client.claim(b.topic, auto_ack=True)).jobs[0]
        with pytest.raises(Invalid):
            await acker.ack(job)


async def test_closing_sends_what_is_pending_and_takes_nothing_more(server):
    async with held_client(server) as b:
        acker = b.acker()
        jobs = await b.jobs(3)
        acks = [asyncio.create_task(acker.ack(job)) for job in jobs[:2]]
        await asyncio.sleep(0)
        await acker.close()
        assert await asyncio.gather(*acks) == [True, True]
        with pytest.raises(Closed):
            await acker.ack(jobs[2])
        await acker.close()


async def test_closing_by_a_deadline_tells_what_was_not_sent_from_what_is_unknown(server):
    async with held_client(server) as b:
        acker = b.acker()
        jobs = await b.jobs(2)
        b.wire.hold()
        flying = acker.settle(jobs[0].seq, jobs[0].lease_id or "")
        await b.wire.arrived()
        pending = acker.settle(jobs[1].seq, jobs[1].lease_id or "")
        await acker.close(deadline_ms=1)
        assert isinstance(flying.exception(), Indeterminate)
        assert isinstance(pending.exception(), Closed)
        b.wire.release()


async def test_closing_at_once_fails_what_was_just_given(server):
    async with held_client(server) as b:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        acker = b.acker()
        (job,) = await b.jobs(1)
        future = acker.settle(job.seq, job.lease_id or "")
        await acker.close(deadline_ms=0)
        with pytest.raises((Closed, Indeterminate)):
            await future
        await asyncio.sleep(0)
        assert failures == []


class Gated:
    """A client whose acks are answered once the test says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.sent: list[list[int]] = []

    async def ack(self, topic: str, seqs: list[int], **whose: Any) -> Settled:
        self.sent.append(seqs)
        await self.gate.wait()
        return Settled(topic, len(seqs), [], 0, 0, False)

    async def nack(self, *args: Any, **whose: Any) -> Settled:
        raise NotImplementedError

    async def return_jobs(self, *args: Any, **whose: Any) -> Settled:
        raise NotImplementedError

    async def extend(self, *args: Any, **whose: Any) -> Extended:
        raise NotImplementedError


@pytest.mark.parametrize("turns", range(8))
async def test_closing_at_once_while_an_answer_comes_leaves_nobody_without_an_outcome(turns):
    client = Gated()
    acker = Acker(client, "q")
    futures = [acker.settle(1, "l")]
    while not client.sent:
        await asyncio.sleep(0)
    futures += [acker.settle(seq, "l") for seq in (2, 3)]
    client.gate.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    await acker.close(deadline_ms=0)
    assert all(future.done() for future in futures)
    kinds = [type(future.exception()) for future in futures]
    assert set(kinds) <= {type(None), Closed, Indeterminate}
    assert kinds[1:] != [Indeterminate] * 2 or client.sent == [[1], [2, 3]], "what was not sent is not unknown"
    await acker.close()
    assert (acker._flying, acker._batches, acker._pending_count) == ({}, {}, 0)


async def test_closing_sends_also_what_nobody_waits_for_any_more(server):
    async with held_client(server) as b:
        acker = b.acker()
        jobs = await b.jobs(3)
        b.wire.hold()
        acks = [asyncio.create_task(acker.ack(job)) for job in jobs[:1]]
        await b.wire.arrived()
        acks += [asyncio.create_task(acker.ack(job)) for job in jobs[1:]]
        await asyncio.sleep(0)
        for ack in acks:
            ack.cancel()
        await asyncio.wait(acks)
        closing = asyncio.create_task(acker.close())
        b.wire.release()
        await closing
        assert b.wire.sizes == [1, 2]
        assert (await b.counts()).in_flight == 0


@pytest.mark.parametrize("options", [{"requests_max": 0}, {"pending_max": "1"}, {"batch_seqs_max": 1_001}])
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(Invalid):
        AckerSettings(**options)
