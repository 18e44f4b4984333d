"""Reading: cursors, floors, tombstones, own records left out, and waits that do not poll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tenure import Broker, Overloaded, Settings
from tenure.broker import OpenAnswer
from tenure.contract.commands import Diff
from tenure.core.decide.table import DECIDES
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, datas, make_queue, seqs, start, turn

# Waiting


async def test_a_read_waits_for_the_first_record(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    waiting = await start(broker.diff("t", from_seq=1, wait_ms=1000))
    assert not waiting.done()
    await broker.produce("t", [b"2", b"3"])
    assert datas(waiting.result().records) == [b"2", b"3"]


async def test_a_read_that_finds_something_does_not_wait(broker: Broker) -> None:
    await broker.put_topic("t", {"cap_records": 1})
    await broker.produce("t", [b"1", b"2"])
    assert (await start(broker.diff("t", wait_ms=1000))).done()
    await broker.delete_records("t", before_seq=9)
    assert (await start(broker.diff("t", wait_ms=1000))).done(), "a tombstone is something"


async def test_a_wait_ends_empty_when_its_time_is_up(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", wait_ms=1000))
    clock.advance(999)
    await turn()
    assert not waiting.done()
    clock.advance(1)
    await turn()
    assert waiting.result().records == []


async def test_a_wait_is_clamped(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", wait_ms=10**9))
    clock.advance(30_000)
    await turn()
    assert waiting.done()


async def test_own_records_do_not_end_a_wait(broker: Broker) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", node="a", wait_ms=1000))
    await broker.produce("t", [b"1"], node="a")
    await turn()
    assert not waiting.done()
    await broker.produce("t", [b"2"], node="b")
    await turn()
    assert (seqs(waiting.result().records), waiting.result().next_from_seq) == ([2], 2)


async def test_a_wait_looks_only_when_something_happened_on_its_topic(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    diff = DECIDES[Diff]

    def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return diff(*args)

    monkeypatch.setitem(DECIDES, Diff, counted)  # type: ignore[misc]
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", wait_ms=1000))
    for _ in range(50):
        await broker.produce("other", [b"x"])
    assert looks == 1
    await broker.produce("t", [b"1"])
    await waiting
    assert looks == 2


async def test_a_wait_for_fsync_records_ends_when_they_are_synced(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        waiting = await start(broker.diff("t", wait_ms=1000))
        log.gate.clear()
        producing = await start(broker.produce("t", [b"1"]))
        assert not waiting.done()
        log.gate.set()
        await producing
        assert seqs(waiting.result().records) == [1]


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(broker: Broker) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", wait_ms=1000))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert broker._serving.lines._reads == {}


async def test_the_number_of_those_who_wait_is_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(waiters_max=2)) as broker:
        await make_queue(broker)
        reading = await start(broker.diff("q", wait_ms=1000))
        claiming = await start(broker.claim("q", node="w", wait_ms=1000))
        with pytest.raises(Overloaded) as error:
            broker.diff("q", wait_ms=1000)
        assert error.value.detail == {"limit": "waiters_max", "max": 2}
        with pytest.raises(Overloaded):
            broker.work("q", node="w")
        assert (await broker.diff("q")).records == [], "who does not wait needs no place"
        clock.advance(1000)
        await asyncio.gather(reading, claiming)
        assert (await start(broker.diff("q", wait_ms=1000))).cancel()


async def test_a_waiting_reader_does_not_read_its_own_records_again_and_again(broker: Broker) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", node="me", wait_ms=30_000))
    (reading,) = next(iter(broker._serving.lines._reads.values()))
    for number in range(1, 4):
        await broker.produce("t", [b"1"], node="me")
        assert reading.command.from_seq == number
    await broker.produce("t", [b"1"], node="you")
    assert seqs((await waiting).records) == [4]


async def test_a_gap_is_told_once_it_is_durable_and_leads_a_reader_on(clock: ManualClock) -> None:
    """A cap evicts records of an fsync topic before their sync: a reader may not be told of a gap it cannot pass."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("t", {"durability": "fsync", "cap_records": 2})
        await broker.produce("t", [b"1"])
        log.gate.clear()
        producing = await start(broker.produce("t", [b"2", b"3", b"4", b"5"]))
        found = await broker.diff("t", from_seq=1)
        assert (found.tombstone, found.records, found.next_from_seq) == (None, [], 1)
        log.gate.set()
        await producing
        found = await broker.diff("t", from_seq=1)
        assert found.tombstone is not None
        assert (found.tombstone.gap_to, [record.seq for record in found.records]) == (3, [4, 5])


async def test_readers_that_wait_are_answered_over_several_turns_those_first_who_had_no_time(
    clock: ManualClock,
) -> None:
    """A record for many readers is read for each of them, and no turn of the loop does that for all."""
    async with await Broker.open(None, clock=clock, settings=Settings(turn_ms_max=0)) as broker:
        await broker.put_topic("t")
        answered: list[int] = []
        for number in range(20):
            answer = broker.diff("t", node="own" if number % 2 else None, wait_ms=30_000)
            assert isinstance(answer, OpenAnswer)
            answer.when_done(lambda _, number=number, answer=answer: answered.append(number))  # type: ignore[misc]
        broker.produce("t", [b"1"], node="own")
        at_once = len(answered)
        assert at_once <= 1, "a turn that is over reads for one"
        broker.produce("t", [b"2"], node="own")
        while len(answered) < 10:
            before = len(answered)
            await asyncio.sleep(0)
            assert len(answered) - before <= 2
        await turn()
        assert sorted(answered) == list(range(0, 20, 2))
        broker.produce("t", [b"3"], node="you")
        await turn()
        await turn()
        assert sorted(answered) == list(range(20))
