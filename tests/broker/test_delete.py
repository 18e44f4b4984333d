"""Deleting records (contract, section 6): below a seq, by tag, by seq, and all of these together."""

from __future__ import annotations

import pytest

from tenure import Broker, Invalid, NotFound
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.broker.support import make_queue, numbers, read, reopen, seqs, snapshot, tagged


async def test_before_seq_deletes_what_lies_below(broker: Broker) -> None:
    await broker.produce("t", [b"one", b"two", b"three"])
    gone = await broker.delete_records("t", before_seq=3)
    assert (gone.topic, gone.deleted, gone.earliest_seq, gone.head_seq, gone.count, gone.bytes) == ("t", 2, 3, 3, 1, 5)
    assert seqs(await read(broker, "t")) == [3]


@pytest.mark.parametrize("match", ["a.1", ["tag", "Eq", "a.1"], ("tag", "Eq", "a.1")])
async def test_a_tag_is_matched_exactly(broker: Broker, match: object) -> None:
    await broker.produce("t", tagged("a.1", "a.10", None, "a.1", ""))
    assert (await broker.delete_records("t", match=match)).deleted == 2
    assert seqs(await read(broker, "t")) == [2, 3, 5]


async def test_a_glob_matches_what_begins_alike(broker: Broker) -> None:
    await broker.produce("t", tagged("a.1", "a.10", None, "b", "a", ""))
    assert (await broker.delete_records("t", match=["tag", "Glob", "a.*"])).deleted == 2
    assert (await broker.delete_records("t", match=["tag", "Glob", "*"])).deleted == 3
    assert seqs(await read(broker, "t")) == [3], "an untagged record never matches"


@pytest.mark.parametrize("glob", ["", "a", "*a", "a*b*", "a**", "*a*"])
async def test_a_glob_that_does_not_end_in_its_one_asterisk_is_refused(broker: Broker, glob: str) -> None:
    await broker.produce("t", tagged("a"))
    with pytest.raises(Invalid):
        broker.delete_records("t", match=["tag", "Glob", glob])


async def test_an_asterisk_in_a_plain_tag_is_itself(broker: Broker) -> None:
    await broker.produce("t", tagged("a*", "ab"))
    assert (await broker.delete_records("t", match="a*")).deleted == 1


async def test_seqs_are_deleted_one_by_one_and_repeats_count_once(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2", b"3", b"4"])
    assert (await broker.delete_records("t", seqs=[2, 4, 2, 99, 0])).deleted == 2
    assert seqs(await read(broker, "t")) == [1, 3]


async def test_conditions_are_anded(broker: Broker) -> None:
    await broker.produce("t", tagged("a", "a", "b", "a", "b", "a"))
    gone = await broker.delete_records("t", before_seq=6, match="a", seqs=[1, 3, 4, 6])
    assert gone.deleted == 2
    assert seqs(await read(broker, "t")) == [2, 3, 5, 6]
    assert (await broker.delete_records("t", before_seq=4, match="b")).deleted == 1
    assert (await broker.delete_records("t", before_seq=3, seqs=[2, 5])).deleted == 1
    assert (await broker.delete_records("t", match="a", seqs=[5, 6])).deleted == 1
    assert seqs(await read(broker, "t")) == [5]


async def test_no_condition_at_all_is_refused(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    with pytest.raises(Invalid):
        broker.delete_records("t")
    assert broker.topic("t").count == 1


async def test_a_delete_that_finds_nothing_changes_nothing(broker: Broker) -> None:
    await broker.produce("t", tagged("a"))
    before = snapshot(broker)
    for condition in ({"before_seq": 1}, {"match": "b"}, {"seqs": [7]}, {"before_seq": 0, "match": "a"}):
        assert (await broker.delete_records("t", **condition)).deleted == 0
    assert snapshot(broker) == before


async def test_a_delete_of_an_absent_topic_is_not_found(broker: Broker) -> None:
    with pytest.raises(NotFound):
        broker.delete_records("t", before_seq=1)


async def test_deleting_twice_deletes_once(broker: Broker) -> None:
    await broker.produce("t", tagged("a", "b", "a"))
    assert (await broker.delete_records("t", match="a")).deleted == 2
    assert (await broker.delete_records("t", match="a")).deleted == 0
    assert broker.topic("t").count == 1


async def test_a_delete_is_of_its_moment_and_spares_what_comes_later(broker: Broker) -> None:
    await broker.produce("t", tagged("a"))
    await broker.delete_records("t", match="a", before_seq=99)
    await broker.produce("t", tagged("a"))
    assert seqs(await read(broker, "t")) == [2]


async def test_a_deleted_job_is_gone_from_every_place_of_its_queue(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=6, dlq_strategy="block")
    await broker.claim("q", node="w", max_count=4)
    await broker.nack("q", node="w", seqs=[1])
    await broker.nack("q", node="w", seqs=[2], delay_ms=1000)
    await broker.nack("q", node="w", seqs=[3], dead=True)
    assert (await broker.delete_records("q", seqs=[1, 2, 3, 4, 5])).deleted == 5
    counted = numbers(broker)
    assert [counted[name] for name in ("ready", "in_flight", "delayed", "parked")] == [1, 0, 0, 0]
    assert (await broker.ack("q", node="w", seqs=[4])).skipped == [4], "whoever held it"
    clock.advance(100_000)
    assert (await broker.claim("q", node="w", max_count=9)).seqs == [6]


async def test_a_delete_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.produce("t", tagged("a", "b", "c"))
    await broker.delete_records("t", match="b")
    async with await reopen(broker, log, clock) as broker:
        assert seqs(await read(broker, "t")) == [1, 3]
        assert (await broker.delete_records("t", match=["tag", "Glob", "*"])).deleted == 2
