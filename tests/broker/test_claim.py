"""Claiming: who gets which job, for how long, and who waits for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import Broker, Conflict, NotFound, Overloaded, Record
from tenure.broker.serving.waiting_line import divide
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.kit.brokers import make_queue, numbers, reopen, start, turn

# What a claim gives


async def test_a_lease_id_is_not_reused_after_a_restart_that_lost_it(clock: ManualClock) -> None:
    disk = SimDisk()
    async with await Broker.open(disk, clock=clock) as broker:
        await make_queue(broker, jobs=3)
        broker.claim("q", node="w")  # carried out, and not written yet
        lost = broker.leases("q").items[0].lease_id
        killed = disk.kill()
    async with await Broker.open(killed, clock=clock) as broker:
        assert broker.leases("q").items == []
        claim = await broker.claim("q", node="w")
        assert claim.seqs == [1]
        assert claim.lease_id != lost


async def test_claims_need_a_queue_that_is_there(broker: Broker) -> None:
    with pytest.raises(NotFound):
        broker.claim("q", node="w")
    await broker.put_topic("log")
    for command in (broker.claim, broker.ack, broker.nack, broker.extend, broker.work):
        with pytest.raises(Conflict) as error:
            command("log", node="w")
        assert error.value.code == "not_a_queue"
    for look in (broker.jobs, broker.leases):
        with pytest.raises(Conflict):
            look("log")
    assert broker.topics().items == ["log"], "and nothing was created"


# Claim ids


async def test_a_repeat_is_answered_at_once_even_where_claims_wait(broker: Broker) -> None:
    """Nothing is ready and others wait: the lost answer must not wait in their line."""
    await make_queue(broker, jobs=1, claim_jitter_ms=1000)
    first = await start(broker.claim("q", node="w", claim_id="c"))
    broker._engine.clock.advance(1000)  # type: ignore[attr-defined]
    assert (await first).seqs == [1]
    waiting = await start(broker.claim("q", node="v", wait_ms=30_000))
    again = await start(broker.claim("q", node="w", claim_id="c", wait_ms=30_000))
    assert again.result().seqs == [1]
    waiting.cancel()


async def test_a_claim_id_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=2)
    first = await broker.claim("q", node="w", claim_id="c")
    async with await reopen(broker, log, clock) as broker:
        again = await broker.claim("q", node="w", claim_id="c")
        assert (again.seqs, again.lease_id, again.deadline) == (first.seqs, first.lease_id, first.deadline)


# Waiting


async def test_a_claim_waits_for_an_append(broker: Broker) -> None:
    await make_queue(broker)
    waiting = await start(broker.claim("q", node="w", max_count=5, wait_ms=1000))
    assert not waiting.done()
    await broker.produce("q", [b"1", b"2"])
    await turn()
    assert waiting.result().seqs == [1, 2]


async def test_a_claim_that_finds_work_does_not_wait(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    waiting = await start(broker.claim("q", node="w", max_count=5, wait_ms=1000))
    assert waiting.result().seqs == [1]


async def test_a_wait_ends_empty_when_its_time_is_up(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    waiting = await start(broker.claim("q", node="w", wait_ms=500))
    clock.advance(499)
    await turn()
    assert not waiting.done()
    clock.advance(1)
    await turn()
    assert waiting.result().jobs == []
    await broker.produce("q", [b"1"])
    assert numbers(broker)["ready"] == 1, "who has gone gets nothing"


async def test_a_nack_wakes_a_claim(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    waiting = await start(broker.claim("q", node="v", wait_ms=1000))
    await broker.nack("q", node="w", seqs=[1])
    await turn()
    assert (waiting.result().seqs, waiting.result().deliveries(1)) == ([1], 2)


async def test_an_expiry_wakes_a_claim(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    waiting = await start(broker.claim("q", node="v", wait_ms=5000))
    clock.advance(1000)
    await turn()
    assert not waiting.done(), "a lease lasts up to its deadline, that moment included"
    clock.advance(1)
    await turn()
    assert waiting.result().seqs == [1]


async def test_an_extend_puts_the_wake_up_off(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    waiting = await start(broker.claim("q", node="v", wait_ms=5000))
    await broker.extend("q", node="w", seqs=[1], lease_ms=2000)
    clock.advance(1500)
    await turn()
    assert not waiting.done()
    clock.advance(501)
    await turn()
    assert waiting.result().seqs == [1]


@pytest.mark.parametrize("how", ["delay_ms", "deliver_at", "nack"])
async def test_the_end_of_a_delay_wakes_a_claim(broker: Broker, clock: ManualClock, how: str) -> None:
    await make_queue(broker)
    waiting = None
    if how == "nack":
        await broker.produce("q", [b"1"])
        await broker.claim("q", node="w")
        await broker.nack("q", node="w", seqs=[1], delay_ms=700)
    else:
        waiting = await start(broker.claim("q", node="v", wait_ms=5000))
        due = {"delay_ms": 700} if how == "delay_ms" else {"deliver_at": clock.wall_ms() + 700}
        await broker.produce("q", [Record(data=b"1", **due)])  # type: ignore[arg-type]
    waiting = waiting or await start(broker.claim("q", node="v", wait_ms=5000))
    clock.advance(699)
    await turn()
    assert not waiting.done()
    clock.advance(1)
    await turn()
    assert waiting.result().seqs == [1]


async def test_a_redrive_wakes_a_claim(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dlq_strategy="block")
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], dead=True)
    waiting = await start(broker.claim("q", node="v", wait_ms=5000))
    await broker.redrive("q")
    await turn()
    assert waiting.result().seqs == [1]


async def test_one_job_wakes_one_claim_and_the_others_wait_on(broker: Broker) -> None:
    await make_queue(broker)
    waiting = [await start(broker.claim("q", node=f"w{number}", wait_ms=5000)) for number in range(3)]
    await broker.produce("q", [b"1"])
    await turn()
    assert sorted(len(task.result().jobs) if task.done() else -1 for task in waiting) == [-1, -1, 1]
    await broker.produce("q", [b"2", b"3"])
    await turn()
    assert sorted(seq for task in waiting for seq in task.result().seqs) == [1, 2, 3]


async def test_a_claim_that_is_cancelled_gives_back_what_it_got(broker: Broker) -> None:
    await make_queue(broker)
    waiting = asyncio.ensure_future(broker.claim("q", node="w", wait_ms=5000))
    await turn()
    broker.produce("q", [b"1"])  # handed over, but the waiter has had no turn yet
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    claim = await broker.claim("q", node="v")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 2)


async def test_a_claim_beside_a_full_stream_gets_what_is_ready(broker: Broker) -> None:
    await make_queue(broker, jobs=9)
    stream = broker.work("q", node="s", max_count=2)
    poll = await start(broker.claim("q", node="w", max_count=3))
    assert poll.result().seqs == [3, 4, 5]
    waiting = await start(broker.claim("q", node="w", max_count=3, wait_ms=5000))
    assert waiting.result().seqs == [6, 7, 8]
    stream.close()


async def test_a_claim_without_a_wait_beside_others_that_wait_is_answered_at_once(broker: Broker) -> None:
    await make_queue(broker)
    waiting = await start(broker.claim("q", node="w", wait_ms=5000))
    empty = await start(broker.claim("q", node="v"))
    assert empty.result().jobs == []
    assert not waiting.done()
    waiting.cancel()


# Cohorts


async def test_ten_workers_who_ask_for_ten_of_fifty_jobs_get_five_each(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=50, claim_jitter_ms=100)
    claims = [await start(broker.claim("q", node=f"w{number}", max_count=10)) for number in range(10)]
    assert not any(claim.done() for claim in claims), "the window gathers"
    clock.advance(100)
    await turn()
    assert [len(claim.result().jobs) for claim in claims] == [5] * 10
    assert sorted(seq for claim in claims for seq in claim.result().seqs) == list(range(1, 51))


async def test_shares_are_in_proportion_to_what_each_asks_for(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=30, claim_jitter_ms=100)
    small = await start(broker.claim("q", node="a", max_count=10))
    large = await start(broker.claim("q", node="b", max_count=50))
    clock.advance(100)
    await turn()
    assert (len(small.result().jobs), len(large.result().jobs)) == (5, 25)


async def test_a_cohort_that_asks_for_less_than_there_is_gets_all_it_asks_for(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=30, claim_jitter_ms=100)
    claims = [await start(broker.claim("q", node=f"w{number}", max_count=4)) for number in range(3)]
    clock.advance(100)
    await turn()
    assert [len(claim.result().jobs) for claim in claims] == [4, 4, 4]
    assert numbers(broker)["ready"] == 18


async def test_a_cohort_with_nothing_to_share_ends_with_its_window(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, claim_jitter_ms=100)
    claim = await start(broker.claim("q", node="w"))
    clock.advance(100)
    await turn()
    assert claim.result().jobs == []


async def test_jobs_that_come_while_the_window_is_open_are_shared_too(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, claim_jitter_ms=100)
    claims = [await start(broker.claim("q", node=f"w{number}", max_count=10)) for number in range(2)]
    await broker.produce("q", [b"x"] * 10)
    assert not any(claim.done() for claim in claims)
    clock.advance(100)
    await turn()
    assert [len(claim.result().jobs) for claim in claims] == [5, 5]


async def test_a_claim_whose_time_ends_in_another_window_does_not_leave_empty_handed(
    broker: Broker, clock: ManualClock
) -> None:
    """Its own window closed with nothing in it; a later one is open when its wait ends, and jobs are there."""
    await make_queue(broker, claim_jitter_ms=100)
    early = await start(broker.claim("q", node="early", wait_ms=150))
    clock.advance(110)
    late = await start(broker.claim("q", node="late", wait_ms=1000))
    await broker.produce("q", [b"1", b"2"])
    clock.advance(40)
    await turn()
    assert early.result().seqs == [1]
    clock.advance(60)
    await turn()
    assert late.result().seqs == [2]


async def test_a_cohort_shares_what_the_in_flight_cap_leaves(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=50, claim_jitter_ms=100, max_in_flight=10)
    claims = [await start(broker.claim("q", node=f"w{number}", max_count=10)) for number in range(5)]
    clock.advance(100)
    await turn()
    assert [len(claim.result().jobs) for claim in claims] == [2] * 5


async def test_a_cohort_at_a_cap_hears_of_it(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=5, claim_jitter_ms=100, max_in_flight=2)
    first = await start(broker.claim("q", node="w", max_count=2))
    clock.advance(100)
    await first
    second = await start(broker.claim("q", node="w"))
    clock.advance(100)
    await turn()
    with pytest.raises(Overloaded) as error:
        second.result()
    assert error.value.code == "in_flight_cap_exceeded"


async def test_streams_and_polls_are_served_alike(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, claim_jitter_ms=100)
    stream = broker.work("q", node="s", max_count=10)
    poll = await start(broker.claim("q", node="w", max_count=10, wait_ms=1000))
    await broker.produce("q", [b"x"] * 10)
    clock.advance(100)
    await turn()
    assert (len(poll.result().jobs), len((await anext(stream)).jobs)) == (5, 5)
    stream.close()


async def test_who_gets_the_odd_job_takes_turns(broker: Broker) -> None:
    await make_queue(broker)
    streams = [broker.work("q", node=f"s{number}", max_count=100) for number in range(3)]
    for _ in range(30):
        await broker.produce("q", [b"x"])
    held = Counter(job.node for job in broker.jobs("q", state="in_flight").items)
    assert held == {"s0": 10, "s1": 10, "s2": 10}
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    ("ready", "wants", "shares"),
    [
        (50, [10] * 10, [5] * 10),
        (0, [3, 4], [0, 0]),
        (7, [3, 4], [3, 4]),
        (100, [3, 4], [3, 4]),
        (5, [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]),
        (10, [1, 1000], [1, 9]),
        (3, [2, 2], [2, 1]),
    ],
)
def test_division_is_in_proportion_and_exact(ready: int, wants: list[int], shares: list[int]) -> None:
    divided = divide(ready, wants)
    assert divided == shares
    assert sum(divided) == min(ready, sum(wants))


# Caps


async def test_a_claim_that_waits_at_the_cap_goes_on_with_the_next_ack(broker: Broker) -> None:
    await make_queue(broker, jobs=3, max_in_flight=1)
    await broker.claim("q", node="w")
    waiting = await start(broker.claim("q", node="v", wait_ms=1000))
    assert not waiting.done()
    await broker.ack("q", node="w", seqs=[1])
    await turn()
    assert waiting.result().seqs == [2]


async def test_a_wait_that_ends_at_the_cap_says_why(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=3, max_in_flight=1)
    await broker.claim("q", node="w")
    waiting = await start(broker.claim("q", node="v", wait_ms=1000))
    clock.advance(1000)
    await turn()
    with pytest.raises(Overloaded):
        waiting.result()
