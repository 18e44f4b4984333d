"""What an answer waits for, and what can be seen before it is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tenure import Broker, Record
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, numbers, read, seqs, start, turn


@pytest.fixture
def log() -> GatedLog:
    return GatedLog()


@pytest.fixture
async def broker(log: GatedLog, clock: ManualClock) -> AsyncIterator[Broker]:
    async with await Broker.open(log, clock=clock) as broker:
        yield broker
        log.gate.set()


@pytest.mark.parametrize(("durability", "waits"), [("memory", False), ("disk", False), ("fsync", True)])
async def test_a_write_waits_for_the_sync_where_its_class_says_so(
    broker: Broker, log: GatedLog, durability: str, waits: bool
) -> None:
    await make_queue(broker, jobs=5, durability=durability)
    await broker.claim("q", node="w", max_count=5)
    log.gate.clear()
    writes: list[Any] = [
        await start(broker.produce("q", [b"new"])),
        await start(broker.ack("q", node="w", seqs=[1])),
        await start(broker.delete_records("q", seqs=[2])),
        await start(broker.nack("q", node="w", seqs=[3], dead=True)),
    ]
    assert [write.done() for write in writes] == [not waits] * 4
    log.gate.set()
    for write in writes:
        await write


async def test_an_auto_ack_waits_as_an_ack_does(broker: Broker, log: GatedLog) -> None:
    await make_queue(broker, jobs=1, durability="fsync")
    log.gate.clear()
    claiming = await start(broker.claim("q", node="w", auto_ack=True))
    assert not claiming.done()
    log.gate.set()
    assert (await claiming).seqs == [1]


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
@pytest.mark.parametrize("leases_durable", [True, False])
async def test_leases_wait_for_the_sync_only_where_they_are_durable(
    broker: Broker, log: GatedLog, durability: str, leases_durable: bool
) -> None:
    await make_queue(broker, jobs=3, durability=durability, leases_durable=leases_durable)
    held = await broker.claim("q", node="w")
    log.gate.clear()
    answers: list[Any] = [
        await start(broker.claim("q", node="w")),
        await start(broker.extend("q", node="w", lease_id=held.lease_id)),
        await start(broker.nack("q", node="w", lease_id=held.lease_id)),
    ]
    assert [answer.done() for answer in answers] == [not leases_durable] * 3
    log.gate.set()
    for answer in answers:
        await answer


async def test_topics_and_routers_are_answered_once_they_are_synced(broker: Broker, log: GatedLog) -> None:
    log.gate.clear()
    answers: list[Any] = [
        await start(broker.put_topic("t")),
        await start(broker.put_router("r", source="t", dest="u")),
        await start(broker.delete_router("r")),
        await start(broker.delete_topic("t")),
    ]
    assert not any(answer.done() for answer in answers)
    log.gate.set()
    for answer in answers:
        await answer


async def test_an_answer_about_nothing_waits_for_nothing(broker: Broker, log: GatedLog) -> None:
    await make_queue(broker, durability="fsync", leases_durable=True)
    log.gate.clear()
    broker.produce("other", [b"keeps the disk busy"])
    answers: list[Any] = [
        await start(broker.claim("q", node="w")),
        await start(broker.ack("q", node="w", seqs=[1])),
        await start(broker.nack("q", node="w", seqs=[1])),
        await start(broker.extend("q", node="w", seqs=[1], lease_ms=1000)),
        await start(broker.delete_records("q", before_seq=9)),
        await start(broker.redrive("q")),
    ]
    assert all(answer.done() for answer in answers)


async def test_records_of_an_fsync_topic_cannot_be_seen_until_they_are_synced(broker: Broker, log: GatedLog) -> None:
    await make_queue(broker, jobs=1, durability="fsync")
    log.gate.clear()
    producing = await start(broker.produce("q", [b"2", Record(data=b"3", delay_ms=1)]))
    assert seqs(await read(broker, "q")) == [1]
    found = await broker.diff("q", from_seq=1)
    assert (found.records, found.head_seq, found.caught_up, found.tombstone) == ([], 1, True, None)
    info = broker.topic("q")
    assert (info.head_seq, info.durable_seq, info.count) == (3, 1, 3)
    assert numbers(broker)["ready"] == 1
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [1]
    waiting = await start(broker.claim("q", node="v", max_count=9, wait_ms=1000))
    assert not waiting.done()
    log.gate.set()
    await producing
    await turn()
    assert waiting.result().seqs == [2]
    assert broker.topic("q").durable_seq == 3


async def test_records_of_other_classes_can_be_seen_at_once(broker: Broker, log: GatedLog) -> None:
    log.gate.clear()
    for durability in ("memory", "disk"):
        broker.produce(durability, [b"1"], config={"durability": durability})
        assert seqs(await read(broker, durability)) == [1]
        assert broker.topic(durability).durable_seq == 0


async def test_one_sync_serves_everybody_who_came_before_it(broker: Broker, log: GatedLog) -> None:
    await make_queue(broker, durability="fsync")
    await make_queue(broker, "other", jobs=50, durability="fsync")
    claim = await broker.claim("other", node="w", max_count=50)
    before = broker.metrics.syncs
    log.gate.clear()
    answers: list[Any] = [await start(broker.produce("q", [b"first"]))]
    for seq in claim.seqs:
        answers.append(await start(broker.ack("other", node="w", seqs=[seq])))
        answers.append(await start(broker.produce("q", [b"x"])))
    log.gate.set()
    for answer in answers:
        await answer
    assert broker.metrics.syncs - before == 2, "the one that was running, and one for all that came meanwhile"


async def test_a_caller_can_wait_for_all_that_was_appended(broker: Broker, log: GatedLog) -> None:
    log.gate.clear()
    await broker.produce("t", [b"1"])
    waiting = await start(broker.synced())
    assert not waiting.done()
    log.gate.set()
    await waiting
    assert broker.topic("t").durable_seq == 1
    assert (await start(broker.synced())).done(), "nothing is left to wait for"


async def test_a_move_to_fsync_hides_what_is_not_synced_yet(broker: Broker, log: GatedLog) -> None:
    await broker.put_topic("t", {"durability": "disk"})
    log.gate.clear()
    await broker.produce("t", [b"1"])
    assert seqs(await read(broker, "t")) == [1]
    putting = await start(broker.put_topic("t", {"durability": "fsync"}))
    assert seqs(await read(broker, "t")) == []
    log.gate.set()
    await putting
    assert seqs(await read(broker, "t")) == [1]


async def test_a_claim_that_waited_long_for_its_sync_gets_its_time_back(
    broker: Broker, log: GatedLog, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1, leases_durable=True)
    log.gate.clear()
    claiming = await start(broker.claim("q", node="w", lease_ms=1000))
    clock.advance(400)
    await turn()
    log.gate.set()
    claim = await claiming
    assert claim.deadline == clock.wall_ms() + 1000, "moved by the wait"
    assert broker.leases("q").items[0].deadline == claim.deadline
    clock.advance(1000)
    assert (await broker.ack("q", node="w", seqs=[1])).count == 1


async def test_a_claim_that_waited_little_keeps_its_deadline(broker: Broker, log: GatedLog, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, leases_durable=True)
    log.gate.clear()
    deadline = clock.wall_ms() + 1000
    claiming = await start(broker.claim("q", node="w", lease_ms=1000))
    clock.advance(100)
    log.gate.set()
    assert (await claiming).deadline == deadline


REPEATED: dict[str, Callable[[Broker], Awaitable[Any]]] = {
    "ack": lambda broker: broker.ack("q", node="w", seqs=[1], strict=True),
    "delete_records": lambda broker: broker.delete_records("q", seqs=[2]),
    "delete_topic": lambda broker: broker.delete_topic("t"),
    "delete_router": lambda broker: broker.delete_router("r"),
}


@pytest.mark.parametrize("name", REPEATED)
async def test_a_repeat_that_finds_it_done_waits_until_that_is_durable(clock: ManualClock, name: str) -> None:
    """Nothing is left to do, which its caller takes for success: a lost lead may still undo what the first call did."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=2, durability="fsync")
        await broker.put_topic("t", {})
        await broker.put_topic("source", {})
        await broker.put_router("r", source="source", dest="q")
        await broker.claim("q", node="w")
        log.gate.clear()
        first = await start(REPEATED[name](broker))
        again = await start(REPEATED[name](broker))
        assert not first.done()
        assert not again.done()
        log.gate.set()
        await first
        await again
