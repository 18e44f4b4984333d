"""Appending: all or nothing, at most once where the caller names it, within the limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Broker, Conflict, Overloaded, Record, Settings
from tenure.core.state.client_marks import MARK_KEPT_MS
from tenure.errors import NotLeader
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, numbers, read, reopen, snapshot, start, turn

DAY_MS = 24 * 3600 * 1000

# Seqs


async def test_calls_take_effect_in_their_order_whenever_they_are_awaited(broker: Broker) -> None:
    answers = [broker.produce("t", [b"%d" % number]) for number in range(100)]
    assert broker.topic("t").count == 100, "done when it is called"
    replies = await asyncio.gather(*reversed(answers))
    assert [reply.first_seq for reply in replies] == list(range(100, 0, -1))


async def test_the_timestamp_is_wall_time(broker: Broker, clock: ManualClock) -> None:
    await broker.produce("t", [b"1"])
    clock.jump_wall(-3_600_000)
    await broker.produce("t", [b"2"])
    first, second = await read(broker, "t")
    assert second.ts == clock.wall_ms() == first.ts - 3_600_000


# Limits


async def test_the_live_bytes_of_all_topics_together_are_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(total_bytes_max=100)) as broker:
        await make_queue(broker)
        await broker.produce("q", [b"x" * 60])
        await broker.produce("other", [b"x" * 40])
        before = snapshot(broker)
        with pytest.raises(Overloaded) as error:
            broker.produce("q", [b"x"])
        assert error.value.detail["limit"] == "total_bytes_max"
        assert snapshot(broker) == before
        await broker.claim("q", node="w", auto_ack=True)
        await broker.produce("q", [b"x" * 60])


async def test_writers_are_turned_away_while_the_disk_is_behind(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=Settings(pending_bytes_max=100)) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        log.gate.clear()
        waiting = await start(broker.produce("t", [b"x" * 101]))
        with pytest.raises(Overloaded):
            broker.produce("t", [b"x"])
        log.gate.set()
        await waiting
        await broker.produce("t", [b"x"])


# Caps


# Idempotency keys


async def test_a_key_is_known_even_after_its_records_are_gone_and_after_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    await broker.produce("q", [b"1"], idempotency_key="k")
    await broker.claim("q", node="w", auto_ack=True)
    async with await reopen(broker, log, clock) as broker:
        again = await broker.produce("q", [b"1"], idempotency_key="k")
        assert (again.first_seq, again.deduped, broker.topic("q").count) == (1, True, 0)


async def test_a_repeat_is_answered_when_nothing_else_is_written(broker: Broker) -> None:
    """The first copy is written and its sync is not due yet: there is no later batch that the repeat could wait for."""
    await broker.produce("t", [b"1"], idempotency_key="k")
    again = await start(broker.produce("t", [b"1"], idempotency_key="k"))
    assert again.done()
    assert again.result().deduped


async def test_a_repeat_waits_until_the_first_copy_is_durable(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        log.gate.clear()
        first = await start(broker.produce("t", [b"1"], idempotency_key="k"))
        again = await start(broker.produce("t", [b"1"], idempotency_key="k"))
        assert not first.done()
        assert not again.done()
        log.gate.set()
        assert (await first).first_seq == (await again).first_seq == 1


async def test_a_limit_that_was_lowered_holds_for_topics_from_before(clock: ManualClock) -> None:
    log = MemoryLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"idempotency_window_ms": 60_000})
    settings = Settings(idempotency_window_ms_max=1_000)
    async with await Broker.open(log.reopen(), clock=clock, settings=settings) as broker:
        await broker.produce("t", [b"1"], idempotency_key="k")
        assert broker.idempotency_keys("t") == 1
        assert broker.idempotency_keys("absent") == 0
        clock.advance(1_001)
        assert broker.idempotency_keys("t") == 0


# Client marks


async def test_a_mark_survives_its_records_and_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.produce("t", [b"1"], client_id="c", client_seq=9)
    await broker.delete_records("t", before_seq=2)
    async with await reopen(broker, log, clock) as broker:
        with pytest.raises(Conflict) as error:
            broker.produce("t", [b"1"], client_id="c", client_seq=9)
        assert error.value.detail["last_client_seq"] == 9


REPEATS: dict[str, Any] = {
    "the same client_seq": {"client_id": "c", "client_seq": 5},
    "an older client_seq": {"client_id": "c", "client_seq": 4},
    "its key for another payload": {"idempotency_key": "k"},
}


@pytest.mark.parametrize("repeat", REPEATS)
async def test_a_repeat_is_refused_only_after_the_first_copy_is_durable(clock: ManualClock, repeat: str) -> None:
    """Its caller takes the refusal for success, and until then a crash takes the first copy back."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        log.gate.clear()
        first = await start(broker.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=5))
        again = await start(broker.produce("t", [b"2"], **REPEATS[repeat]))
        assert not again.done()
        log.gate.set()
        assert (await first).first_seq == 1
        with pytest.raises(Conflict) as error:
            await again
        assert type(error.value) is Conflict
        assert error.value.code == "idempotency_conflict"


@pytest.mark.parametrize("repeat", REPEATS)
async def test_a_repeat_whose_first_copy_never_became_durable_is_not_refused_as_used(
    clock: ManualClock, repeat: str
) -> None:
    log = GatedLog()
    broker = await Broker.open(log, clock=clock)
    await broker.put_topic("t", {"durability": "fsync"})
    log.gate.clear()
    first = await start(broker.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=5))
    again = await start(broker.produce("t", [b"2"], **REPEATS[repeat]))
    broker._serving.committer.fail(NotLeader("another leads", leader="http://b", epoch=2))
    for call in (first, again):
        with pytest.raises(NotLeader):
            await call
    log.gate.set()
    await broker.close()


async def test_of_as_many_clients_as_may_be_remembered_the_one_idle_for_longest_gives_way(clock: ManualClock) -> None:
    log, settings = MemoryLog(), Settings(client_marks_max=2)
    broker = await Broker.open(log, clock=clock, settings=settings)
    for client in "ab":
        await broker.produce("t", [b"1"], client_id=client, client_seq=1)
        clock.advance(1)
    clock.advance(MARK_KEPT_MS - 2)
    before = snapshot(broker)
    with pytest.raises(Overloaded) as error:
        broker.produce("t", [b"1"], client_id="c", client_seq=1)
    assert error.value.detail["limit"] == "client_marks_max"
    assert snapshot(broker) == before
    clock.advance(1)
    await broker.produce("t", [b"1"], client_id="c", client_seq=1)
    with pytest.raises(Overloaded):
        broker.produce("t", [b"1"], client_id="d", client_seq=1)  # b is a millisecond younger than a was
    async with await reopen(broker, log, clock) as broker:
        for known in "bc":
            with pytest.raises(Conflict):
                broker.produce("t", [b"1"], client_id=known, client_seq=1)
        await broker.produce("t", [b"1"], client_id="a", client_seq=1)


# Unique keys


async def test_a_unique_key_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", unique_key="u")])
    async with await reopen(broker, log, clock) as broker:
        assert (await broker.produce("q", [Record(data=b"1", unique_key="u")])).deduped


# Delays


async def test_deliver_at_follows_the_wall_clock_and_a_delay_does_not(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    later = clock.wall_ms() + 10_000
    await broker.produce("q", [Record(data=b"wall", deliver_at=later), Record(data=b"log", delay_ms=10_000)])
    clock.jump_wall(9_900)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == []
    clock.jump_wall(100)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [1]
    clock.jump_wall(-1_000_000)
    clock.advance(10_000)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]


async def test_delays_survive_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker)
    at = clock.wall_ms() + 200
    await broker.produce("q", [Record(data=b"1", delay_ms=100), Record(data=b"2", deliver_at=at)])
    async with await reopen(broker, log, clock) as broker:
        assert numbers(broker)["delayed"] == 2
        clock.advance(100)
        assert (await broker.claim("q", node="w", max_count=9)).seqs == [1]
        clock.advance(100)
        assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]


async def test_an_append_wakes_whoever_waits_for_it_before_it_is_answered(broker: Broker) -> None:
    await make_queue(broker)
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    broker.produce("q", [b"1"])
    await turn()
    assert claiming.result().seqs == [1]
