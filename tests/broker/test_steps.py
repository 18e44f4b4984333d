"""No turn of the loop is long: what touches many jobs is done in steps, and everything else goes on between them.

A step is ten jobs here and a turn one step, so a turn is counted and not timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from tenure import Broker, Closed, Indeterminate, NotFound, Overloaded, Record, Settings
from tenure.contract.replies import Settled
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_topic
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.turns import Turns
from tests.kit.brokers import GatedLog, make_queue, numbers, start, turn

STEP = 10
JOBS = 400
SMALL = Settings(step_jobs_max=STEP, turn_ms_max=0)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
async def broker(log: MemoryLog, clock: ManualClock) -> AsyncIterator[Broker]:
    async with await Broker.open(log, clock=clock, settings=SMALL) as broker:
        yield broker


async def held_queue(broker: Broker, clock: ManualClock, *, jobs: int = JOBS, **config: Any) -> None:
    """A queue with each of its jobs held under a lease of its own, all of which run out together."""
    await make_queue(broker, jobs=jobs, lease_ms=1_000, **config)
    for _ in range(jobs):
        await broker.claim("q", node="dies")
    clock.advance(1_001)


async def turns_until(broker: Broker, future: asyncio.Future[Any], most: int = 100) -> list[int]:
    """Let turns pass until a future is done; return how many leases ended in each."""
    ended: list[int] = []
    while not future.done():
        before = broker.metrics.expired
        await asyncio.sleep(0)
        ended.append(broker.metrics.expired - before)
        assert len(ended) < most, "it goes on by itself"
    return ended


# Mass expiry


async def test_no_turn_ends_more_leases_than_a_step(broker: Broker, clock: ManualClock) -> None:
    await held_queue(broker, clock)
    claim = asyncio.ensure_future(broker.claim("q", node="w", max_count=1_000))
    ended = await turns_until(broker, claim)
    assert max(ended) <= 2 * STEP, "a step of the work, and one of a look"
    assert claim.result().seqs == list(range(1, JOBS + 1)), "the claim waits for all of them, and gets all"


async def test_other_queues_go_on_while_one_catches_up(broker: Broker, clock: ManualClock) -> None:
    await held_queue(broker, clock)
    await make_queue(broker, "other", jobs=1)
    claim = await start(broker.claim("q", node="w"))
    assert not claim.done()
    grant = await broker.claim("other", node="w")
    await broker.ack("other", node="w", seqs=grant.seqs)
    assert not claim.done()
    assert (await claim).seqs == [1]


async def test_a_live_lease_can_be_acked_while_others_of_its_queue_run_out(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=JOBS + 1)
    alive = await broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    clock.advance(1_001)
    ack = broker.ack("q", node="w", lease_id=alive.lease_id)
    waiting = await start(ack)
    assert not waiting.done()
    assert (await waiting).count == 1
    assert numbers(broker) | {"oldest_ready_ms": 0} == numbers(broker) | {
        "ready": JOBS,
        "in_flight": 0,
        "oldest_ready_ms": 0,
    }


@pytest.mark.parametrize("look", [False, True])
async def test_what_came_in_time_is_in_time_however_much_ended_before_it(
    broker: Broker, clock: ManualClock, look: bool
) -> None:
    """The clock passes the deadline of four leases while an ack, a nack and an extend wait; the fourth comes late."""
    await make_queue(broker, jobs=JOBS + 4)
    mine = await broker.claim("q", node="w", lease_ms=1_050, max_count=4)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    clock.advance(1_001)
    acked = broker.ack("q", node="w", seqs=mine.seqs[:1])
    nacked = broker.nack("q", node="w", seqs=mine.seqs[1:2], delay_ms=90_000)
    extended = broker.extend("q", node="w", seqs=mine.seqs[2:3], lease_ms=90_000)
    clock.advance(100)
    late = broker.ack("q", node="w", seqs=mine.seqs[3:])
    for _ in range(10 * JOBS if look else 0):  # a look shows how far the queue has come, and takes it no further
        broker.topic("q")
    assert broker.metrics.expired < JOBS, "they all wait"
    await broker.produce("other", [b"1"])
    in_time = [(await acked).skipped, (await nacked).skipped, (await extended).skipped]
    assert broker._state.log_ms == clock.wall_ms(), "the time of the log never goes back"
    assert (in_time, (await late).skipped) == ([[], [], []], mine.seqs[3:])
    assert [broker.job("q", seq).state for seq in (2, 3, 4)] == ["delayed", "in_flight", "ready"]
    assert broker.job("q", 4).history[-1].end == "expired"


async def test_no_record_is_older_than_those_before_it_whatever_waited_for_its_queue(
    broker: Broker, clock: ManualClock
) -> None:
    """A reject and an append of a queue that is behind are held up, while others append where their records go."""
    await make_queue(broker, jobs=JOBS + 1, dead_letter="dead", ttl_ms=60_000)
    mine = await broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    await broker.put_router("r", source="other", dest="q")
    clock.advance(1_001)
    rejected = broker.nack("q", node="w", seqs=mine.seqs, dead=True)
    appended = broker.produce("q", [b"late"])
    clock.advance(500)
    await asyncio.sleep(0)
    for topic in ("dead", "other"):
        broker.produce(topic, [b"1"])
    clock.advance(500)
    assert (await rejected).count == 1
    assert (await appended).count == 1
    await broker.synced()
    invariants(broker._state)
    for topic in ("dead", "q"):
        times_ms = [record.ts for record in (await broker.diff(topic, limit=1_000)).records]
        assert times_ms == sorted(times_ms)


async def test_commands_that_wait_for_a_queue_run_in_their_order(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=JOBS + 1)
    alive = await broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    clock.advance(1_001)
    nack = broker.nack("q", node="w", lease_id=alive.lease_id, reason="first")
    ack = broker.ack("q", node="w", lease_id=alive.lease_id)
    assert (await nack).count == 1
    assert (await ack).count == 0, "the nack came first"


async def test_a_command_that_is_not_awaited_runs_all_the_same(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=JOBS + 1)
    alive = await broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    clock.advance(1_001)
    broker.ack("q", node="w", lease_id=alive.lease_id)
    await broker.claim("q", node="w")
    assert broker.topic("q").count == JOBS


async def test_a_long_poll_is_served_once_its_queue_has_caught_up(broker: Broker, clock: ManualClock) -> None:
    await held_queue(broker, clock)
    waiting = asyncio.ensure_future(broker.claim("q", node="w", max_count=5, wait_ms=30_000))
    await turns_until(broker, waiting)
    assert waiting.result().seqs == [1, 2, 3, 4, 5]


async def test_claims_that_find_nothing_after_their_queue_has_caught_up_are_answered_all_the_same(
    broker: Broker, clock: ManualClock
) -> None:
    await held_queue(broker, clock, jobs=50, retry_backoff={"min_ms": 60_000, "max_ms": 60_000})
    claims = [broker.claim("q", node=f"w{number}") for number in range(3)]
    async with asyncio.timeout(20):
        assert [(await claim).seqs for claim in claims] == [[], [], []]
    assert numbers(broker)["delayed"] == 50


async def test_a_stream_is_served_once_its_queue_has_caught_up(broker: Broker, clock: ManualClock) -> None:
    await held_queue(broker, clock)
    async with broker.work("q", node="w", max_count=3) as stream:
        grant = await asyncio.wait_for(anext(stream), 30)
    assert grant.seqs == [1, 2, 3]


async def test_a_replay_ends_the_same_leases_in_the_same_order(
    broker: Broker, log: MemoryLog, clock: ManualClock
) -> None:
    await held_queue(broker, clock, retry_backoff={"min_ms": 10, "max_ms": 50})
    claim = asyncio.ensure_future(broker.claim("q", node="w", max_count=30))
    while not claim.done():
        await broker.produce("q", [b"meanwhile"])
        clock.advance(3)
    await broker.nack("q", node="w", seqs=claim.result().seqs[:3])
    before = _topics(broker)
    async with await Broker.open(log.reopen(), clock=clock) as again:
        assert _topics(again) == before


def _topics(broker: Broker) -> list[bytes]:
    """The topics as canonical bytes; the opening of a log is an event, so the whole state is never the same."""
    return [dump_topic(topic, now_ms=0) for topic in broker._state.by_id.values()]


async def test_the_wall_clock_is_not_set_while_a_queue_that_waits_for_it_is_behind(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker)
    due_ms = clock.wall_ms() + 500
    for _ in range(JOBS // 10):
        await broker.produce("q", [Record(data=b"x", deliver_at=due_ms)] * 10)
    clock.advance(501)
    clock.jump_wall(-60_000)
    before = broker._state.wall_offset_ms
    await broker.produce("log", [b"x"])
    assert numbers(broker)["delayed"] > 0
    assert broker._state.wall_offset_ms == before, "what was due at the old time becomes ready first"
    assert len((await broker.claim("q", node="w", max_count=1_000)).jobs) == JOBS
    await broker.produce("log", [b"x"])
    assert broker._state.wall_offset_ms == before - 60_000


# Those who go away


async def test_a_caller_that_goes_away_while_it_waits_for_a_queue_gets_nothing_done(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=JOBS + 1)
    alive = await broker.claim("q", node="w", lease_ms=60_000)
    for _ in range(JOBS):
        await broker.claim("q", node="dies", lease_ms=1_000)
    clock.advance(1_001)
    waiting: asyncio.Future[Settled] = await start(broker.ack("q", node="w", lease_id=alive.lease_id))
    waiting.cancel()
    await broker.claim("q", node="w")
    assert broker.topic("q").count == JOBS + 1


async def test_a_claim_whose_caller_goes_away_while_its_queue_catches_up_holds_nothing(
    broker: Broker, clock: ManualClock
) -> None:
    await held_queue(broker, clock)
    gone = await start(broker.claim("q", node="gone", max_count=50))
    gone.cancel()
    assert (await broker.claim("q", node="w", max_count=1_000)).seqs == list(range(1, JOBS + 1))


async def test_closing_refuses_those_who_wait_for_a_queue(broker: Broker, clock: ManualClock) -> None:
    await held_queue(broker, clock)
    waiting = [
        asyncio.ensure_future(_await(broker.claim("q", node="w"))),
        asyncio.ensure_future(_await(broker.claim("q", node="w", wait_ms=1_000))),
        asyncio.ensure_future(_await(broker.extend("q", node="w", seqs=[1], lease_ms=1_000))),
    ]
    await asyncio.sleep(0)
    await broker.close()
    for each in waiting:
        with pytest.raises(Closed):
            await each


async def test_no_more_callers_wait_for_a_queue_than_may(log: MemoryLog, clock: ManualClock) -> None:
    settings = Settings(step_jobs_max=STEP, turn_ms_max=0, waiters_max=2)
    async with await Broker.open(log, clock=clock, settings=settings) as broker:
        await held_queue(broker, clock)
        waiting = [broker.ack("q", node="w", seqs=[number]) for number in (1, 2)]
        with pytest.raises(Overloaded, match="waiters_max"):
            broker.ack("q", node="w", seqs=[3])
        for each in waiting:
            await each


async def test_a_queue_that_is_deleted_while_it_catches_up_answers_those_who_wait(
    broker: Broker, clock: ManualClock
) -> None:
    await held_queue(broker, clock)
    waiting = await start(broker.ack("q", node="w", seqs=[1]))
    await broker.delete_topic("q")
    with pytest.raises(NotFound):
        await waiting


# Deletes and redrives


async def test_a_delete_takes_as_many_turns_as_it_needs_and_says_how_many_went(broker: Broker) -> None:
    await broker.produce("log", [b"x"] * JOBS)
    deleting = await start(broker.delete_records("log", before_seq=JOBS))
    counts = [broker.topic("log").count]
    while not deleting.done():
        await asyncio.sleep(0)
        counts.append(broker.topic("log").count)
    assert max(before - after for before, after in pairwise(counts)) <= STEP
    assert (await deleting).deleted == JOBS - 1
    assert broker.topic("log").count == 1


async def test_a_delete_that_is_cancelled_leaves_what_it_has_not_reached(broker: Broker) -> None:
    await broker.produce("log", [b"x"] * JOBS)
    deleting = asyncio.ensure_future(_await(broker.delete_records("log", before_seq=JOBS)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    deleting.cancel()
    for _ in range(JOBS):
        await asyncio.sleep(0)
    assert 0 < broker.topic("log").count < JOBS
    assert not broker._serving.turns


async def _await(awaitable: Any) -> Any:
    return await awaitable


async def test_closing_between_two_steps_keeps_those_done_and_refuses_the_caller(
    broker: Broker, log: MemoryLog, clock: ManualClock
) -> None:
    await broker.produce("log", [b"x"] * JOBS)
    deleting = asyncio.ensure_future(_await(broker.delete_records("log", before_seq=JOBS)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await broker.close()
    with pytest.raises(Closed):
        await deleting
    async with await Broker.open(log.reopen(), clock=clock) as again:
        assert 0 < again.topic("log").count < JOBS


async def test_a_redrive_lets_others_go_on_between_its_letters(broker: Broker) -> None:
    await make_queue(broker, jobs=50, dead_letter="dead")
    grant = await broker.claim("q", node="w", max_count=50)
    await broker.nack("q", node="w", lease_id=grant.lease_id, dead=True)
    redriving = await start(broker.redrive("dead"))
    assert not redriving.done()
    early = await broker.claim("q", node="w", max_count=50)
    assert 0 < len(early.jobs) < 50
    assert (await redriving).redriven == 50
    assert broker.metrics.redriven == 50


# Eviction and reads


async def test_a_lowered_cap_is_answered_at_once_and_reached_later(broker: Broker) -> None:
    await broker.produce("log", [b"x"] * JOBS)
    info, _ = await broker.put_topic("log", {"cap_records": 5})
    assert info.count > 5
    for _ in range(JOBS):
        await asyncio.sleep(0)
    assert broker.topic("log").count == 5


async def test_a_read_that_waits_passes_over_the_readers_own_records_by_itself(broker: Broker) -> None:
    await broker.produce("log", [Record(data=b"own", node="me")] * 2_000)
    reading = asyncio.ensure_future(_await(broker.diff("log", node="me", wait_ms=30_000)))
    for _ in range(JOBS):
        await asyncio.sleep(0)
    assert not reading.done()
    await broker.produce("log", [Record(data=b"other", node="you")])
    assert [record.data for record in (await reading).records] == [b"other"]


# Turns


async def test_a_turn_goes_on_until_its_time_is_used_up() -> None:
    taken: list[int] = []
    turns = 0

    def end_turn() -> None:
        nonlocal turns
        turns += 1

    work = Turns(
        asyncio.get_running_loop(),
        turn_ms=10,
        clock_ms=lambda: 2 * len(taken),  # a step takes 2 ms
        after=end_turn,
    )

    def step() -> bool:
        taken.append(turns)
        return len(taken) == 12

    work.add(step)
    for _ in range(10):
        await asyncio.sleep(0)
    assert [taken.count(number) for number in range(turns)] == [5, 5, 2]


async def test_one_produce_for_many_who_wait_is_handed_out_over_several_turns(broker: Broker) -> None:
    await make_queue(broker)
    waiting = [asyncio.ensure_future(_await(broker.claim("q", node="w", wait_ms=30_000))) for _ in range(20)]
    await asyncio.sleep(0)
    await broker.produce("q", [b"x"] * 20)
    served = [sum(each.done() for each in waiting)]
    while served[-1] < 20:
        await asyncio.sleep(0)
        served.append(sum(each.done() for each in waiting))
        assert len(served) < 200, "it goes on by itself"
    assert max(after - before for before, after in pairwise(served)) <= 2
    assert sorted(each.result().seqs[0] for each in waiting) == list(range(1, 21))


async def test_two_works_take_their_steps_in_turn() -> None:
    taken: list[str] = []
    work = Turns(asyncio.get_running_loop(), turn_ms=1_000, clock_ms=lambda: 0, after=lambda: None)

    def take(name: str) -> bool:
        taken.append(name)
        return taken.count(name) == 3

    for name in "ab":
        work.add(partial(take, name))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken == ["a", "b"] * 3


async def test_a_step_that_raises_is_reported_and_the_other_works_go_on() -> None:
    loop, reported, taken = asyncio.get_running_loop(), list[Any](), list[int]()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    work = Turns(loop, turn_ms=0, clock_ms=lambda: 0, after=lambda: None)

    def fail() -> bool:
        raise RuntimeError("a fault of our own")

    def step() -> bool:
        taken.append(1)
        return len(taken) == 3

    work.add(fail)
    work.add(step)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(reported), len(taken), len(work)) == (1, 3, 0)


async def test_a_command_whose_disk_fails_between_two_steps_is_refused(
    broker: Broker, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.produce("log", [b"x"] * JOBS)
    deleting = asyncio.ensure_future(_await(broker.delete_records("log", before_seq=JOBS)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    def refuse(*_: object, **__: object) -> int:
        raise Closed("the disk has failed")

    monkeypatch.setattr(log, "append_one", refuse)
    with pytest.raises((Closed, Indeterminate)):
        await deleting
    assert 0 < broker.topic("log").count < JOBS


async def test_a_queue_that_falls_behind_by_a_sync_is_worked_through_though_no_command_comes(
    clock: ManualClock,
) -> None:
    """Its jobs become visible by the sync, for a claim that waits, and all of them are over their TTL by then."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=SMALL) as broker:
        await make_queue(broker, durability="fsync", ttl_ms=300)
        waiting = await start(broker.claim("q", node="w", wait_ms=20_000))
        log.gate.clear()
        broker.produce("q", [b"1"] * 4 * STEP)
        await turn()
        clock.advance(2_000)
        log.gate.set()
        await broker.synced()
        for _ in range(10):
            await turn()
        assert broker._state.topics["q"].count == 0
        assert not waiting.done()
        waiting.cancel()
