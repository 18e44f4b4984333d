"""Reading (contract, section 5): cursors, floors, tombstones, own records left out, and waits that do not poll."""

from __future__ import annotations

import asyncio

import pytest

from tenure import Broker, NotFound, Overloaded, Record, Settings
from tenure.broker import reads
from tenure.testing.clock import ManualClock
from tests.broker.support import GatedLog, datas, make_queue, read, seqs, start, tagged, turn

# The cursor


async def test_a_read_gives_what_lies_above_its_cursor(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2", b"3"])
    found = await broker.diff("t", from_seq=1)
    assert datas(found.records) == [b"2", b"3"]
    assert (found.topic, found.next_from_seq, found.head_seq, found.earliest_seq) == ("t", 3, 3, 1)
    assert (found.caught_up, found.lag, found.tombstone) == (True, 0, None)


async def test_a_limited_read_goes_on_where_it_stopped(broker: Broker) -> None:
    await broker.produce("t", [b"%d" % number for number in range(1, 701)])
    found, cursor = list[int](), 0
    for expected_lag in (500, 300, 100, 0):
        part = await broker.diff("t", from_seq=cursor, limit=200)
        found += seqs(part.records)
        cursor = part.next_from_seq
        assert (part.lag, part.caught_up) == (expected_lag, expected_lag == 0)
    assert found == list(range(1, 701))


async def test_the_default_limit_is_256_and_the_highest_1000(broker: Broker) -> None:
    await broker.produce("t", [b""] * 1500)
    assert len((await broker.diff("t")).records) == 256
    assert len((await broker.diff("t", limit=5000)).records) == 1000
    assert len((await broker.diff("t", limit=0)).records) == 1


async def test_an_answer_is_bounded_by_bytes_but_has_at_least_one_record(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(diff_bytes_max=100)) as broker:
        await broker.produce(
            "t", [b"x" * 300, b"x" * 40, b"x" * 40, Record(data=b"x" * 10, meta=b'{"a":"12345"}'), b""]
        )
        sizes, cursor = [], 0
        while cursor < 5:
            found = await broker.diff("t", from_seq=cursor)
            sizes.append(len(found.records))
            cursor = found.next_from_seq
        assert sizes == [1, 2, 2]


async def test_an_empty_topic_is_caught_up(broker: Broker) -> None:
    await broker.put_topic("t")
    found = await broker.diff("t")
    assert (found.records, found.next_from_seq, found.head_seq, found.earliest_seq) == ([], 0, 0, 1)
    assert found.caught_up


async def test_an_absent_topic_is_not_found(broker: Broker) -> None:
    with pytest.raises(NotFound):
        broker.diff("t")


# Own records


async def test_a_reader_does_not_get_its_own_records_but_moves_past_them(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2"], node="a")
    await broker.produce("t", [b"3"], node="b")
    await broker.produce("t", [b"4"])
    await broker.produce("t", [b"5"], node="a")
    found = await broker.diff("t", node="a")
    assert (datas(found.records), found.next_from_seq, found.caught_up) == ([b"3", b"4"], 5, True)
    assert datas((await broker.diff("t", node=["a", "b"])).records) == [b"4"]
    assert datas((await broker.diff("t", node="c")).records) == [b"1", b"2", b"3", b"4", b"5"]
    assert len((await broker.diff("t", node=[])).records) == 5


async def test_own_records_behind_the_last_one_taken_are_passed_too(broker: Broker) -> None:
    await broker.produce("t", [b"1"], node="b")
    await broker.produce("t", [b"2"] * 600, node="a")
    await broker.produce("t", [b"3"], node="b")
    found = await broker.diff("t", node="a", limit=1)
    assert (datas(found.records), found.next_from_seq) == ([b"1"], 601)


async def test_a_topic_can_turn_node_filtering_off(broker: Broker) -> None:
    await broker.put_topic("t", {"dedupe_node": False})
    await broker.produce("t", [b"1"], node="a")
    assert len((await broker.diff("t", node="a")).records) == 1


# Loss


async def test_what_a_cap_took_leaves_a_tombstone(broker: Broker) -> None:
    await broker.put_topic("t", {"cap_records": 2})
    await broker.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    found = await broker.diff("t", from_seq=1)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.tombstone.reason) == (2, 3, "cap")
    assert (found.tombstone.missed_estimate, found.tombstone.earliest_seq, found.tombstone.head_seq) == (2, 4, 5)
    assert seqs(found.records) == [4, 5], "the answer goes on behind the gap"
    assert found.next_from_seq == 5


@pytest.mark.parametrize(("from_seq", "missed"), [(0, True), (2, True), (3, False), (5, False)])
async def test_only_a_cursor_below_the_eviction_floor_missed_something(
    broker: Broker, from_seq: int, missed: bool
) -> None:
    await broker.put_topic("t", {"cap_records": 2})
    await broker.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    assert ((await broker.diff("t", from_seq=from_seq)).tombstone is not None) == missed


async def test_what_a_ttl_took_leaves_a_tombstone(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t", {"ttl_ms": 100})
    await broker.produce("t", [b"1", b"2"])
    clock.advance(101)
    found = await broker.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.gap_from, found.tombstone.gap_to) == ("ttl", 1, 2)
    assert (found.records, found.next_from_seq, found.earliest_seq) == ([], 2, 3)


async def test_a_gap_of_both_kinds_is_mixed(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t", {"ttl_ms": 100, "cap_records": 2})
    await broker.produce("t", [b"1", b"2", b"3"])
    clock.advance(101)
    found = await broker.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.gap_to) == ("mixed", 3)
    found = await broker.diff("t", from_seq=1)
    assert found.tombstone is not None
    assert found.tombstone.reason == "ttl", "the cap took only what this reader had seen"


async def test_a_cursor_above_the_head_belongs_to_an_earlier_topic(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2", b"3"])
    await broker.delete_topic("t")
    await broker.produce("t", [b"new"])
    found = await broker.diff("t", from_seq=3)
    assert found.tombstone is not None
    assert found.tombstone.reason == "recreated"
    assert (datas(found.records), found.next_from_seq) == ([b"new"], 1)


async def test_a_cursor_at_the_head_missed_nothing(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    assert (await broker.diff("t", from_seq=1)).tombstone is None


async def test_a_gap_made_only_of_deletes_and_acks_is_silent(broker: Broker) -> None:
    await make_queue(broker, jobs=4)
    await broker.delete_records("q", seqs=[1, 3])
    await broker.claim("q", node="w", auto_ack=True)
    found = await broker.diff("q")
    assert (seqs(found.records), found.tombstone, found.earliest_seq) == ([4], None, 4)


async def test_deletes_next_to_an_eviction_do_not_widen_its_gap(broker: Broker) -> None:
    await broker.put_topic("t", {"cap_records": 3})
    await broker.produce("t", [b"1", b"2", b"3", b"4"])
    await broker.delete_records("t", seqs=[2])
    found = await broker.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.earliest_seq) == (1, 1, 3)
    assert (await broker.diff("t", from_seq=1)).tombstone is None


# Queues


async def test_reading_a_queue_takes_nothing_from_it(broker: Broker) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="w")
    assert seqs(await read(broker, "q")) == [1, 2]
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [2]


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
    diff = reads.diff

    def counted(*args: object, **options: object) -> object:
        nonlocal looks
        looks += 1
        return diff(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(reads, "diff", counted)
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
    assert broker._pump.readings == {}


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


async def test_records_keep_their_tags_when_read(broker: Broker) -> None:
    await broker.produce("t", tagged("a", None, ""))
    assert [record.tag for record in await read(broker, "t")] == ["a", None, ""]


async def test_a_waiting_reader_does_not_read_its_own_records_again_and_again(broker: Broker) -> None:
    await broker.put_topic("t")
    waiting = await start(broker.diff("t", node="me", wait_ms=30_000))
    (reading,) = next(iter(broker._pump.readings.values()))
    for number in range(1, 4):
        await broker.produce("t", [b"1"], node="me")
        assert reading._from_seq == number
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
