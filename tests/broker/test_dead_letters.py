"""Dead letters and redrive: restarts, waiting callers, durability, one batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tenure import Broker
from tenure.contract.records import Stored
from tenure.core.events import KINDS
from tenure.core.state.ranges import each
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import (
    GatedLog,
    datas,
    fail_by_expiry,
    make_queue,
    numbers,
    read,
    reopen,
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
    await broker.nack(topic, node="k", seqs=[job.seq for job in broker.jobs(topic, state="in_flight").items] or [0])


class AppendsLog(MemoryLog):
    """A log that keeps what each append was made of: all of it is written, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[list[str]] = []

    def append(self, entries: Sequence[tuple[int, int, bytes]], **options: bool) -> list[int]:
        self.appends.append([KINDS[kind].__name__ for kind, _, _ in entries])
        return super().append(entries, **options)


# When


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


# Where to


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
        assert {job.seq: job.reason for job in broker.jobs("q", state="parked").items} == expected
    rows = [row for row in events.drain() if row.event == "dead_lettered"]
    assert {seq: row.reason for row in rows for seq in each(row.runs)} == expected


async def test_a_dead_letter_topic_may_be_a_queue_with_workers_of_its_own(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, "dead")
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    waiting = await start(broker.claim("dead", node="d", wait_ms=5000))
    await fail_by_expiry(broker, clock)
    await broker.claim("q", node="w")
    claim = await waiting
    assert (datas(claim.jobs), claim.deliveries(1)) == ([b"1"], 1)


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


async def test_a_job_declared_dead_where_there_is_no_dead_letter_topic_is_deleted(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    events = broker.events("q")
    await kill_job(broker, 1, reason="poison")
    assert (broker.topic("q").count, numbers(broker)["dead_lettered"]) == (0, 1)
    assert [row.reason for row in events.drain() if row.event == "dead_lettered"] == ["poison"]


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


# Redrive


async def park_and_copy(broker: Broker, *seqs: int, jobs: int = 3, **config: Any) -> None:
    """A queue whose jobs ``seqs`` are parked, each with a copy in ``dead``."""
    await make_queue(broker, jobs=jobs, dead_letter="dead", dlq_strategy="block_and_dlq", **config)
    await broker.claim("q", node="k", max_count=jobs)
    for seq in seqs:
        await broker.nack("q", node="k", seqs=[seq], dead=True)
    rest = [job.seq for job in broker.jobs("q", state="in_flight").items]
    await broker.nack("q", node="k", seqs=rest or [0])


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
