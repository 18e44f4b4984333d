"""Dead letters and their way back (seeds 000 and 003, contract, section 9)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tenure import Broker, Invalid, NotFound, Overloaded, Record, Settings
from tenure.contract.records import Stored
from tenure.core.events import KINDS
from tenure.core.ranges import each
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.broker.support import (
    GatedLog,
    datas,
    fail_by_expiry,
    make_queue,
    numbers,
    read,
    reopen,
    seqs,
    snapshot,
    start,
    turn,
)


def meta(record: Stored) -> dict[str, Any]:
    assert record.meta is not None
    found: dict[str, Any] = json.loads(record.meta)
    return found


async def kill_job(broker: Broker, seq: int, *, reason: str | None = None, topic: str = "q") -> None:
    """Claim what is there and declare one job dead."""
    await broker.claim(topic, node="k", max_count=1000)
    assert (await broker.nack(topic, node="k", seqs=[seq], dead=True, reason=reason)).count == 1
    await broker.nack(topic, node="k", seqs=[job["seq"] for job in broker.jobs(topic, state="in_flight").items] or [0])


class AppendsLog(MemoryLog):
    """A log that keeps what each append was made of: all of it is written, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []

    def append(self, entries: Sequence[tuple[int, int, bytes]], **options: bool) -> list[int]:
        self.appends.append([KINDS[kind].__name__ for kind, _, _ in entries])
        return super().append(entries, **options)


# When


@pytest.mark.parametrize("strategy", ["skip", "block", "block_and_dlq"])
@pytest.mark.parametrize("limit", [1, 3])
async def test_a_job_is_delivered_exactly_max_deliveries_times(
    broker: Broker, clock: ManualClock, strategy: str, limit: int
) -> None:
    await make_queue(broker, jobs=2, max_deliveries=limit, dead_letter="dead", dlq_strategy=strategy)
    for deliveries in range(1, limit + 1):
        claim = await broker.claim("q", node="w", max_count=9, lease_ms=1000)
        assert (claim.seqs, claim.deliveries(1)) == ([1, 2], deliveries)
        assert numbers(broker)["dead_lettered"] == 0
        clock.advance(1001)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == []
    assert numbers(broker)["dead_lettered"] == 2
    assert broker.metrics.dead_lettered == 2


@pytest.mark.parametrize("how", ["nack", "expiry", "both"])
async def test_nacks_and_expiries_count_alike(broker: Broker, clock: ManualClock, how: str) -> None:
    await make_queue(broker, jobs=1, max_deliveries=2, dead_letter="dead")
    for attempt in range(2):
        await broker.claim("q", node="w", lease_ms=1000)
        if how == "nack" or (how == "both" and attempt):
            await broker.nack("q", node="w", seqs=[1])
        else:
            clock.advance(1001)
    assert (await broker.claim("q", node="w")).seqs == []
    assert len(await read(broker, "dead")) == 1


async def test_without_a_limit_a_job_is_redelivered_for_ever(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, dead_letter="dead")
    claim = await fail_by_expiry(broker, clock, 20)
    assert claim is not None
    assert claim.deliveries(1) == 20


async def test_skip_without_a_dead_letter_topic_redelivers_for_ever(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=2)
    claim = await fail_by_expiry(broker, clock, 9)
    assert claim is not None
    assert (claim.seqs, claim.deliveries(1)) == ([1], 9)


async def test_the_claim_that_buries_the_dead_still_gets_the_living(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2, max_deliveries=1, dead_letter="dead")
    await fail_by_expiry(broker, clock)
    await broker.produce("q", [b"3"])
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [3]


async def test_one_pass_buries_at_most_a_thousand(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2500, max_deliveries=1, dead_letter="dead")
    for _ in range(3):
        await broker.claim("q", node="w", max_count=1000, lease_ms=1000)
    clock.advance(1001)
    counts = []
    for _ in range(3):
        assert (await broker.claim("q", node="w", max_count=9)).jobs == []
        counts.append(broker.topic("dead").count)
    assert counts == [1000, 2000, 2500]


async def test_those_who_wait_are_served_past_any_number_of_dead(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2500, max_deliveries=1, dead_letter="dead")
    for _ in range(3):
        await broker.claim("q", node="w", max_count=1000, lease_ms=1000)
    waiting = await start(broker.claim("q", node="v", wait_ms=5000))
    clock.advance(1001)
    await turn()
    assert (broker.topic("dead").count, waiting.done()) == (2500, False)
    await broker.produce("q", [b"new"])
    await turn()
    assert datas(waiting.result().jobs) == [b"new"]


async def test_raising_the_limit_brings_a_job_back_before_it_is_buried(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    await fail_by_expiry(broker, clock)
    await broker.put_topic("q", {"max_deliveries": 2, "dead_letter": "dead"})
    claim = await broker.claim("q", node="w")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 2)


# Where to


async def test_skip_moves_the_job_with_all_that_is_its_own(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, max_deliveries=2, dead_letter="dead")
    job = Record(data=b'{"a": 1e400}', tag="t", node="n", meta=b'{"k": [1e400, "\xc3\xa9"]}')
    await broker.produce("q", [b"first", job])
    await fail_by_expiry(broker, clock, 2)
    await broker.claim("q", node="w", max_count=9)
    bare, full = await read(broker, "dead")
    assert (full.data, full.tag, full.node) == (job.data, "t", "n")
    assert full.meta is not None
    assert full.meta.startswith(b'{"k":[1e400, "\xc3\xa9"]'), "what was in it is kept as it was written"
    assert meta(bare) == {
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
        "$dead_letter_reason": "max_deliveries",
    }
    assert meta(full)["$dead_letter_src_seq"] == 2
    assert (broker.topic("q").count, broker.topic("q").bytes, numbers(broker)["parked"]) == (0, 0, 0)


@pytest.mark.parametrize("strategy", ["skip", "block", "block_and_dlq"])
async def test_a_job_that_was_delivered_too_often_keeps_its_last_reason(
    broker: Broker, clock: ManualClock, strategy: str
) -> None:
    await make_queue(broker, jobs=3, max_deliveries=3, dead_letter="dead", dlq_strategy=strategy)
    for attempt in (1, 2):
        await broker.claim("q", node="w", max_count=3)
        await broker.nack("q", node="w", seqs=[1, 3], reason=f"ValueError: attempt {attempt}")
        await broker.nack("q", node="w", seqs=[2])
    await fail_by_expiry(broker, clock)
    events = broker.events()
    assert (await broker.claim("q", node="w", max_count=3)).seqs == []
    expected = {1: "ValueError: attempt 2", 2: "max_deliveries", 3: "ValueError: attempt 2"}
    if strategy != "block":
        letters = await read(broker, "dead")
        assert {meta(letter)["$dead_letter_src_seq"]: meta(letter)["$dead_letter_reason"] for letter in letters} == (
            expected
        )
    if strategy != "skip":
        assert {job["seq"]: job["reason"] for job in broker.jobs("q", state="parked").items} == expected
    rows = [row for row in events.drain() if row.event == "dead_lettered"]
    assert {seq: row.reason for row in rows for seq in each(row.runs)} == expected


async def test_a_job_shows_its_last_reason_also_after_a_delivery_that_ran_out(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w")
    await broker.nack("q", node="w", seqs=[1], reason="boom")
    await fail_by_expiry(broker, clock)
    assert broker.job("q", 1)[1]["reason"] == "boom"


async def test_block_parks_the_job_where_it_is(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead", dlq_strategy="block")
    await fail_by_expiry(broker, clock)
    assert (await broker.claim("q", node="w")).seqs == []
    counted = numbers(broker)
    assert (counted["parked"], counted["ready"], broker.topic("q").count) == (1, 0, 1)
    assert broker.topics().items == ["q"]
    clock.advance(10**9)
    assert (await broker.claim("q", node="w")).seqs == []


async def test_block_and_dlq_does_both(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead", dlq_strategy="block_and_dlq")
    await fail_by_expiry(broker, clock)
    await broker.claim("q", node="w")
    assert (numbers(broker)["parked"], datas(await read(broker, "dead"))) == (1, [b"1"])


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
async def test_an_absent_dead_letter_topic_is_created_as_a_log_of_the_queue_s_class(
    broker: Broker, clock: ManualClock, durability: str
) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead", durability=durability)
    await fail_by_expiry(broker, clock)
    await broker.claim("q", node="w")
    info = broker.topic("dead")
    assert (info.type, info.config["durability"], info.head_seq) == ("log", durability, 1)


async def test_a_dead_letter_topic_may_be_a_queue_with_workers_of_its_own(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, "dead")
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    waiting = await start(broker.claim("dead", node="d", wait_ms=5000))
    await fail_by_expiry(broker, clock)
    await broker.claim("q", node="w")
    claim = await waiting
    assert (datas(claim.jobs), claim.deliveries(1)) == ([b"1"], 1)


async def test_a_full_dead_letter_topic_parks_the_job(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("dead", {"cap_records": 1, "discard": "reject"})
    await make_queue(broker, jobs=2, max_deliveries=1, dead_letter="dead")
    await broker.claim("q", node="w", lease_ms=1000)
    clock.advance(1001)
    await broker.claim("q", node="w", lease_ms=1000)
    assert (broker.topic("dead").count, numbers(broker)["parked"]) == (1, 0)
    clock.advance(1001)
    assert (await broker.claim("q", node="w")).seqs == []
    assert (broker.topic("dead").count, numbers(broker)["parked"], broker.topic("q").count) == (1, 1, 1)
    (parked,) = broker.jobs("q", state="parked").items
    assert parked["reason"].startswith("max_deliveries; ")


async def test_dead_letters_survive_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=3, max_deliveries=1, dead_letter="dead", dlq_strategy="block_and_dlq")
    await fail_by_expiry(broker, clock)
    await broker.claim("q", node="w", max_count=9)
    before = snapshot(broker)
    async with await reopen(broker, log, clock) as broker:
        assert (numbers(broker)["parked"], numbers(broker)["dead_lettered"]) == (3, 3)
        assert datas(await read(broker, "dead")) == [b"1", b"2", b"3"]
        assert len(snapshot(broker)) == len(before)


# On demand


async def test_a_nack_can_declare_a_job_dead_at_once(broker: Broker) -> None:
    await make_queue(broker, jobs=3, dead_letter="dead")
    await broker.claim("q", node="w", max_count=2)
    done = await broker.nack("q", node="w", seqs=[2, 3], dead=True, reason="poison")
    assert (done.count, done.skipped, done.ready, done.in_flight) == (1, [3], 1, 1)
    (letter,) = await read(broker, "dead")
    assert (letter.data, meta(letter)["$dead_letter_reason"]) == (b"2", "poison")
    assert meta(letter)["$dead_letter_deliveries"] == 1


async def test_a_job_declared_dead_where_there_is_no_dead_letter_topic_is_deleted(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    events = broker.events("q")
    await kill_job(broker, 1, reason="poison")
    assert (broker.topic("q").count, numbers(broker)["dead_lettered"]) == (0, 1)
    assert [row.reason for row in events.drain() if row.event == "dead_lettered"] == ["poison"]


async def test_a_job_declared_dead_is_parked_where_the_strategy_says_so(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dlq_strategy="block")
    await kill_job(broker, 1, reason="poison")
    assert broker.jobs("q", state="parked").items == [
        {"seq": 1, "state": "parked", "deliveries": 1, "reason": "poison"}
    ]


async def test_a_move_is_answered_at_the_stronger_of_the_two_classes(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("dead", {"durability": "fsync"})
        await make_queue(broker, jobs=1, durability="memory", dead_letter="dead")
        await broker.claim("q", node="w")
        log.gate.clear()
        moving = await start(broker.nack("q", node="w", seqs=[1], dead=True))
        assert not moving.done()
        log.gate.set()
        assert (await moving).count == 1


async def test_metas_of_any_shape_survive_the_stamping(broker: Broker) -> None:
    await make_queue(broker, dead_letter="dead")
    odd = [b'{"$dead_letter_from": 7, "x": 1}', b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", b'{"n":1e999}']
    await broker.produce("q", [Record(data=b"%d" % i, meta=text) for i, text in enumerate(odd)])
    await broker.claim("q", node="w", max_count=9)
    assert (await broker.nack("q", node="w", seqs=[1, 2, 3], dead=True)).count == 3
    letters = await read(broker, "dead")
    assert meta(letters[0])["$dead_letter_from"] == "q"
    assert (await broker.redrive("dead")).redriven == 3


# Redrive


async def test_a_redrive_of_a_dead_letter_topic_moves_jobs_back_where_they_came_from(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, "a", max_deliveries=1, dead_letter="dead")
    await make_queue(broker, "b", max_deliveries=1, dead_letter="dead")
    await broker.produce("a", [Record(data=b"a1", tag="t", node="n", meta=b'{"k":1}')])
    await broker.produce("b", [b"b1"])
    for queue in "ab":
        await fail_by_expiry(broker, clock, topic=queue)
        await broker.claim(queue, node="w")
    back = await broker.redrive("dead")
    assert (back.topic, back.redriven, back.seqs, back.to) == ("dead", 2, [1, 2], "a,b")
    assert broker.topic("dead").count == 0
    claim = await broker.claim("a", node="w")
    (job,) = claim.jobs
    assert (job.data, job.tag, job.node, job.seq) == (b"a1", "t", "n", 2)
    assert (meta(job)["k"], meta(job)["$dead_letter_from"]) == (1, "a"), "provenance is kept"
    assert claim.deliveries(2) == 1, "its count starts anew"
    assert datas((await broker.claim("b", node="w")).jobs) == [b"b1"]


async def test_a_job_that_keeps_its_count_is_buried_by_the_next_claim(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=2, dead_letter="dead")
    await fail_by_expiry(broker, clock, 2)
    await broker.claim("q", node="w")
    await broker.redrive("dead", reset_deliveries=False)
    assert (await broker.claim("q", node="w")).seqs == [], "it was delivered as often as it may be"
    assert broker.topic("dead").count == 1
    await broker.put_topic("q", {"max_deliveries": 3, "dead_letter": "dead"})
    await broker.redrive("dead", reset_deliveries=False)
    claim = await broker.claim("q", node="w")
    assert (len(claim.jobs), claim.deliveries(claim.seqs[0])) == (1, 3)


async def test_jobs_that_keep_their_count_are_buried_among_others_and_none_is_passed_over(broker: Broker) -> None:
    await make_queue(broker, max_deliveries=2, dead_letter="dead")
    spent, fresh = b'{"$dead_letter_from":"q","$dead_letter_deliveries":2}', b'{"$dead_letter_from":"q"}'
    metas = [spent, fresh, spent, spent, fresh, fresh, spent, fresh]
    await broker.produce("dead", [Record(data=b"%d" % n, meta=text) for n, text in enumerate(metas, 1)])
    await broker.redrive("dead", reset_deliveries=False)
    claimed = []
    for _ in range(9):
        claimed += datas((await broker.claim("q", node="w", max_count=3)).jobs)
    assert claimed == [b"2", b"5", b"6", b"8"]
    assert sorted(datas(await read(broker, "dead"))) == [b"1", b"3", b"4", b"7"]


async def test_a_redrive_of_a_queue_un_parks(broker: Broker) -> None:
    await make_queue(broker, jobs=2, dlq_strategy="block")
    await kill_job(broker, 1)
    back = await broker.redrive("q")
    assert (back.topic, back.to, back.redriven, back.seqs) == ("q", "q", 1, [1])
    claim = await broker.claim("q", node="w")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 1)
    assert numbers(broker)["parked"] == 0


async def test_an_un_parked_job_may_keep_its_count(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dlq_strategy="block", max_deliveries=1)
    await kill_job(broker, 1)
    await broker.redrive("q", reset_deliveries=False)
    assert (await broker.claim("q", node="w")).seqs == []
    assert numbers(broker)["parked"] == 1


async def park_and_copy(broker: Broker, *seqs: int, jobs: int = 3, **config: Any) -> None:
    """A queue whose jobs ``seqs`` are parked, each with a copy in ``dead``."""
    await make_queue(broker, jobs=jobs, dead_letter="dead", dlq_strategy="block_and_dlq", **config)
    await broker.claim("q", node="k", max_count=jobs)
    for seq in seqs:
        await broker.nack("q", node="k", seqs=[seq], dead=True)
    rest = [job["seq"] for job in broker.jobs("q", state="in_flight").items]
    await broker.nack("q", node="k", seqs=rest or [0])


async def test_redriving_the_copy_of_a_parked_job_un_parks_it_and_adds_no_second_one(broker: Broker) -> None:
    await park_and_copy(broker, 1, 3)
    back = await broker.redrive("dead")
    assert (back.to, back.redriven, back.seqs) == ("q", 2, [1, 2])
    assert (broker.topic("q").count, broker.topic("dead").count, numbers(broker)["parked"]) == (3, 0, 0)
    claim = await broker.claim("q", node="w", max_count=9)
    assert (claim.seqs, [claim.deliveries(seq) for seq in claim.seqs]) == ([1, 2, 3], [1, 2, 1])


async def test_un_parking_a_job_removes_its_copy(broker: Broker) -> None:
    await park_and_copy(broker, 1, 2, 3)
    assert (await broker.redrive("q", seqs=[1, 3])).seqs == [1, 3]
    assert [meta(letter)["$dead_letter_src_seq"] for letter in await read(broker, "dead")] == [2]
    assert (await broker.redrive("dead")).redriven == 1
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [1, 2, 3]
    assert broker.topic("q").count == 3


async def test_a_parked_job_and_its_copy_part_and_meet_in_one_batch(clock: ManualClock) -> None:
    log = AppendsLog()
    async with await Broker.open(log, clock=clock) as broker:
        await park_and_copy(broker, 1, jobs=1)
        for name in ("dead", "q"):
            log.appends.clear()
            await broker.redrive(name)
            assert log.appends == [["Redriven", "Redriven"]], name
            assert (broker.topic("dead").count, numbers(broker)["ready"]) == (0, 1)
            await kill_job(broker, 1)


async def test_the_copy_of_a_parked_job_still_un_parks_it_after_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await park_and_copy(broker, 2)
    broker = await reopen(broker, log, clock=clock)
    async with broker:
        await broker.redrive("dead")
        assert (broker.topic("q").count, numbers(broker)["ready"], broker.topic("dead").count) == (3, 3, 0)


async def test_a_copy_that_outlived_its_parked_job_comes_back_as_a_new_one(broker: Broker) -> None:
    await park_and_copy(broker, 1, jobs=1)
    await broker.delete_records("q", seqs=[1])
    assert (await broker.redrive("dead")).redriven == 1
    assert (await broker.claim("q", node="w")).seqs == [2]


async def test_a_copy_redriven_elsewhere_leaves_the_job_parked(broker: Broker) -> None:
    await park_and_copy(broker, 1, jobs=1)
    await make_queue(broker, "other")
    assert (await broker.redrive("dead", to="other")).redriven == 1
    assert (numbers(broker)["parked"], broker.topic("other").count, broker.topic("dead").count) == (1, 1, 0)
    await broker.redrive("q")
    assert (await broker.claim("q", node="w")).seqs == [1]


async def test_a_letter_that_names_a_parked_job_but_is_not_its_copy_un_parks_nothing(broker: Broker) -> None:
    await park_and_copy(broker, 1, jobs=1)
    forged = b'{"$dead_letter_from":"q","$dead_letter_src_seq":1}'
    await broker.produce("dead", [Record(data=b"forged", meta=forged)])
    assert (await broker.redrive("dead", seqs=[2])).redriven == 1
    assert (numbers(broker)["parked"], broker.topic("q").count) == (1, 2)


async def test_un_parking_takes_a_copy_from_whoever_holds_it(broker: Broker) -> None:
    await make_queue(broker, "dead")
    await park_and_copy(broker, 1, jobs=1)
    assert (await broker.claim("dead", node="operator")).seqs == [1]
    await broker.redrive("q")
    assert (broker.topic("dead").count, (await broker.ack("dead", node="operator", seqs=[1])).count) == (0, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"match": "x"}, [1, 3]),
        ({"match": ["tag", "Glob", "x*"]}, [1, 2, 3]),
        ({"seqs": [4, 2, 99]}, [2, 4]),
        ({"reason_like": "time"}, [2, 3]),
        ({"limit": 2}, [1, 2]),
        ({"match": "x", "reason_like": "time", "limit": 1}, [3]),
        ({"match": "nothing"}, []),
    ],
)
@pytest.mark.parametrize("parked", [True, False])
async def test_a_redrive_can_choose(broker: Broker, parked: bool, options: dict[str, Any], expected: list[int]) -> None:
    await make_queue(broker, dead_letter="dead", dlq_strategy="block" if parked else "skip")
    await broker.produce("q", [Record(data=b"%d" % n, tag=tag) for n, tag in enumerate(("x", "xy", "x", None), 1)])
    await broker.claim("q", node="w", max_count=9)
    for seq, reason in ((1, "boom"), (2, "timeout"), (3, "out of time"), (4, "boom")):
        await broker.nack("q", node="w", seqs=[seq], dead=True, reason=reason)
    back = await broker.redrive("q" if parked else "dead", **options)
    assert (back.seqs, back.redriven) == (expected, len(expected))
    jobs = (await broker.claim("q", node="w", max_count=9)).jobs
    assert datas(jobs) == [b"%d" % seq for seq in expected]


async def test_a_redrive_can_go_elsewhere(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dead_letter="dead")
    await make_queue(broker, "other")
    await kill_job(broker, 1)
    back = await broker.redrive("dead", to="other")
    assert (back.to, back.redriven) == ("other", 1)
    assert (broker.topic("q").count, datas(await read(broker, "other"))) == (0, [b"1"])


async def test_a_caller_redrives_only_to_where_it_may_write(broker: Broker) -> None:
    for queue in "ab":
        await make_queue(broker, queue, jobs=1, dead_letter="dead")
        await kill_job(broker, 1, topic=queue)
    assert (await broker.redrive("dead", reaches=lambda topic: topic == "b")).seqs == [2]
    assert (broker.topic("a").count, broker.topic("b").count, broker.topic("dead").count) == (0, 1, 1)


async def test_only_dead_letters_are_redriven(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dead_letter="dead")
    await make_queue(broker, "other")
    await kill_job(broker, 1)
    strangers = [b'{"$dead_letter_from": 5}', b'{"k":1}', b'{"$dead_letter_from": null}']
    await broker.produce("dead", [b"bare", *(Record(data=b"x", meta=text) for text in strangers)])
    assert (await broker.redrive("dead", to="other")).seqs == [1]
    assert broker.topic("dead").count == 4


@pytest.mark.parametrize("count", ["7", '"many"', "-1", "1e999", "[]", "null", "99999999999999999999"])
async def test_a_forged_count_does_no_harm(broker: Broker, count: str) -> None:
    await make_queue(broker)
    forged = f'{{"$dead_letter_from":"q","$dead_letter_deliveries":{count},"$dead_letter_reason":{count}}}'
    await broker.produce("dead", [Record(data=b"1", meta=forged.encode())])
    assert (await broker.redrive("dead", reset_deliveries=False)).redriven == 1
    claim = await broker.claim("q", node="w")
    assert claim.deliveries(1) == (8 if count == "7" else 1)


async def test_a_target_that_is_gone_is_named(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dead_letter="dead")
    await kill_job(broker, 1)
    await broker.delete_topic("q")
    before = snapshot(broker)
    with pytest.raises(NotFound) as error:
        broker.redrive("dead")
    assert error.value.detail["topic"] == "q"
    with pytest.raises(NotFound):
        broker.redrive("dead", to="nowhere")
    with pytest.raises(Invalid):
        broker.redrive("dead", to="dead")
    assert snapshot(broker) == before


async def test_a_redrive_stops_before_what_cannot_move_and_says_so_when_nothing_could(broker: Broker) -> None:
    await make_queue(broker, jobs=3, dead_letter="dead")
    await broker.claim("q", node="w", max_count=3)
    await broker.nack("q", node="w", seqs=[1, 2, 3], dead=True)
    await broker.put_topic("q", {"cap_records": 2, "discard": "reject"})
    assert (await broker.redrive("dead")).seqs == [1, 2]
    before = snapshot(broker)
    with pytest.raises(Overloaded) as error:
        broker.redrive("dead")
    assert error.value.code == "topic_full"
    assert snapshot(broker) == before


async def test_a_dead_letter_that_somebody_holds_stays(broker: Broker) -> None:
    await make_queue(broker, "dead")
    await make_queue(broker, jobs=2, dead_letter="dead")
    await broker.claim("q", node="w", max_count=2)
    await broker.nack("q", node="w", seqs=[1, 2], dead=True)
    await broker.claim("dead", node="operator")
    assert (await broker.redrive("dead")).seqs == [2]


async def test_a_redrive_of_an_absent_topic_is_not_found(broker: Broker) -> None:
    with pytest.raises(NotFound):
        broker.redrive("dead")


async def test_a_redrive_without_a_limit_moves_a_thousand(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(claim_max=3)) as broker:
        await make_queue(broker, jobs=5, dead_letter="dead")
        for _ in range(2):
            await broker.claim("q", node="w", max_count=3)
        await broker.nack("q", node="w", seqs=[1, 2, 3], dead=True)
        await broker.nack("q", node="w", seqs=[4, 5], dead=True)
        assert (await broker.redrive("dead")).redriven == 3, "as many as one claim may hold"
        assert seqs(await read(broker, "dead")) == [4, 5]
