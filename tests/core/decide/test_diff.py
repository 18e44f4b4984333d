"""Reading: cursors, floors, tombstones, own records left out, and waits that do not poll."""

from __future__ import annotations

import pytest

from tenure import NotFound, Record, Settings
from tenure.contract.records import Stored
from tenure.core.state.ranges import count
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas, seqs, tagged
from tests.kit.rules import Rules, make_queue, read

# The cursor


def test_a_read_gives_what_lies_above_its_cursor(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    found = rules.diff("t", from_seq=1)
    assert datas(found.records) == [b"2", b"3"]
    assert (found.topic, found.next_from_seq, found.head_seq, found.earliest_seq) == ("t", 3, 3, 1)
    assert (found.caught_up, found.lag, found.tombstone) == (True, 0, None)


@pytest.mark.parametrize("live", [True, False])
def test_a_reader_from_among_seqs_that_a_restore_left_out_is_told_recreated_once(rules: Rules, live: bool) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    if not live:
        rules.delete_records("t", before_seq=4)
    rules.state.topics["t"].leave_out(1000)
    rules.produce("t", [b"new"])
    for cursor in (4, 500, 1002):  # the original went on, and gave these seqs to records that are not here
        found = rules.diff("t", from_seq=cursor)
        assert found.tombstone is not None
        assert (found.tombstone.reason, found.tombstone.gap_from, found.tombstone.gap_to) == ("recreated", 4, 1003)
        assert (datas(found.records), found.next_from_seq) == ([b"new"], 1004)
        assert rules.diff("t", from_seq=found.next_from_seq).tombstone is None


def test_a_reader_from_before_a_restore_reads_on_over_the_seqs_left_out(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    rules.state.topics["t"].leave_out(1000)
    at_the_end = rules.diff("t", from_seq=3)
    assert (at_the_end.records, at_the_end.tombstone, at_the_end.caught_up) == ([], None, True)
    assert rules.diff("t", from_seq=at_the_end.next_from_seq).tombstone is None, "an idle reader is not told either"
    rules.produce("t", [b"new"])
    found = rules.diff("t", from_seq=1)
    assert (datas(found.records), found.tombstone) == ([b"2", b"3", b"new"], None)
    assert datas(rules.diff("t", from_seq=at_the_end.next_from_seq).records) == [b"new"]


def test_a_read_that_ends_early_leaves_no_reader_among_seqs_left_out(rules: Rules) -> None:
    rules.state.step_jobs_max = 1
    rules.produce("t", [b"1", b"2", b"3"])
    rules.state.topics["t"].leave_out(1000)
    rules.produce("t", [b"new"])
    found, cursor = list[bytes](), 0
    while len(found) < 4:
        part = rules.diff("t", from_seq=cursor)
        assert part.tombstone is None
        found += datas(part.records)
        cursor = part.next_from_seq
    assert found == [b"1", b"2", b"3", b"new"]


def test_a_limited_read_goes_on_where_it_stopped(rules: Rules) -> None:
    rules.produce("t", [b"%d" % number for number in range(1, 701)])
    found, cursor = list[int](), 0
    for expected_lag in (500, 300, 100, 0):
        part = rules.diff("t", from_seq=cursor, limit=200)
        found += seqs(part.records)
        cursor = part.next_from_seq
        assert (part.lag, part.caught_up) == (expected_lag, expected_lag == 0)
    assert found == list(range(1, 701))


def test_the_default_limit_is_256_and_the_highest_1000(rules: Rules) -> None:
    rules.produce("t", [b""] * 1500)
    assert len((rules.diff("t")).records) == 256
    assert len((rules.diff("t", limit=5000)).records) == 1000
    assert len((rules.diff("t", limit=0)).records) == 1


def test_no_more_is_read_than_was_asked_for(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    rules.produce("t", [b"x"] * 700)
    looked, readable = list[int](), rules.payloads.readable

    def counted(topic: Topic, runs: list[int]) -> tuple[list[Stored], dict[int, Corrupt]]:
        looked.append(count(runs))
        return readable(topic, runs)

    monkeypatch.setattr(rules.payloads, "readable", counted)
    for limit in (1, 10):
        assert len(rules.diff("t", limit=limit).records) == limit
    assert looked == [2, 11], "and the record after it, where the next read begins"


def test_an_empty_topic_is_caught_up(rules: Rules) -> None:
    rules.put_topic("t")
    found = rules.diff("t")
    assert (found.records, found.next_from_seq, found.head_seq, found.earliest_seq) == ([], 0, 0, 1)
    assert found.caught_up


def test_an_absent_topic_is_not_found(rules: Rules) -> None:
    with pytest.raises(NotFound):
        rules.diff("t")


# Own records


def test_a_reader_does_not_get_its_own_records_but_moves_past_them(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2"], node="a")
    rules.produce("t", [b"3"], node="b")
    rules.produce("t", [b"4"])
    rules.produce("t", [b"5"], node="a")
    found = rules.diff("t", node="a")
    assert (datas(found.records), found.next_from_seq, found.caught_up) == ([b"3", b"4"], 5, True)
    assert datas((rules.diff("t", node=["a", "b"])).records) == [b"4"]
    assert datas((rules.diff("t", node="c")).records) == [b"1", b"2", b"3", b"4", b"5"]
    assert len((rules.diff("t", node=[])).records) == 5


def test_own_records_behind_the_last_one_taken_are_passed_too(rules: Rules) -> None:
    rules.produce("t", [b"1"], node="b")
    rules.produce("t", [b"2"] * 600, node="a")
    rules.produce("t", [b"3"], node="b")
    found = rules.diff("t", node="a", limit=1)
    assert (datas(found.records), found.next_from_seq) == ([b"1"], 601)


def test_a_topic_can_turn_node_filtering_off(rules: Rules) -> None:
    rules.put_topic("t", {"dedupe_node": False})
    rules.produce("t", [b"1"], node="a")
    assert len((rules.diff("t", node="a")).records) == 1


# Loss


def test_what_a_cap_took_leaves_a_tombstone(rules: Rules) -> None:
    rules.put_topic("t", {"cap_records": 2})
    rules.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    found = rules.diff("t", from_seq=1)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.tombstone.reason) == (2, 3, "cap")
    assert (found.tombstone.missed_estimate, found.tombstone.earliest_seq, found.tombstone.head_seq) == (2, 4, 5)
    assert seqs(found.records) == [4, 5], "the answer goes on after the gap"
    assert found.next_from_seq == 5


@pytest.mark.parametrize(("from_seq", "missed"), [(0, True), (2, True), (3, False), (5, False)])
def test_only_a_cursor_below_the_eviction_floor_missed_something(rules: Rules, from_seq: int, missed: bool) -> None:
    rules.put_topic("t", {"cap_records": 2})
    rules.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    assert ((rules.diff("t", from_seq=from_seq)).tombstone is not None) == missed


def test_what_a_ttl_took_leaves_a_tombstone(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("t", {"ttl_ms": 100})
    rules.produce("t", [b"1", b"2"])
    clock.advance(101)
    found = rules.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.gap_from, found.tombstone.gap_to) == ("ttl", 1, 2)
    assert (found.records, found.next_from_seq, found.earliest_seq) == ([], 2, 3)


def test_a_gap_of_both_kinds_is_mixed(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("t", {"ttl_ms": 100, "cap_records": 2})
    rules.produce("t", [b"1", b"2", b"3"])
    clock.advance(101)
    found = rules.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.tombstone.gap_to) == ("mixed", 3)
    found = rules.diff("t", from_seq=1)
    assert found.tombstone is not None
    assert found.tombstone.reason == "ttl", "the cap took only what this reader had seen"


def test_a_cursor_above_the_head_belongs_to_an_earlier_topic(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    rules.delete_topic("t")
    rules.produce("t", [b"new"])
    found = rules.diff("t", from_seq=3)
    assert found.tombstone is not None
    assert found.tombstone.reason == "recreated"
    assert (datas(found.records), found.next_from_seq) == ([b"new"], 1)


def test_a_cursor_at_the_head_missed_nothing(rules: Rules) -> None:
    rules.produce("t", [b"1"])
    assert (rules.diff("t", from_seq=1)).tombstone is None


def test_a_gap_made_only_of_deletes_and_acks_is_silent(rules: Rules) -> None:
    make_queue(rules, jobs=4)
    rules.delete_records("q", seqs=[1, 3])
    rules.claim("q", node="w", auto_ack=True)
    found = rules.diff("q")
    assert (seqs(found.records), found.tombstone, found.earliest_seq) == ([4], None, 4)


def test_deletes_next_to_an_eviction_do_not_widen_its_gap(rules: Rules) -> None:
    rules.put_topic("t", {"cap_records": 3})
    rules.produce("t", [b"1", b"2", b"3", b"4"])
    rules.delete_records("t", seqs=[2])
    found = rules.diff("t")
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.earliest_seq) == (1, 1, 3)
    assert (rules.diff("t", from_seq=1)).tombstone is None


# Queues


def test_reading_a_queue_takes_nothing_from_it(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w")
    assert seqs(read(rules, "q")) == [1, 2]
    assert (rules.claim("q", node="w", max_count=9)).seqs == [2]


def test_records_keep_their_tags_when_read(rules: Rules) -> None:
    rules.produce("t", tagged("a", None, ""))
    assert [record.tag for record in read(rules, "t")] == ["a", None, ""]


def test_an_answer_is_bounded_by_bytes_but_has_at_least_one_record(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(diff_bytes_max=100))
    rules.produce("t", [b"x" * 300, b"x" * 40, b"x" * 40, Record(data=b"x" * 10, meta=b'{"a":"12345"}'), b""])
    sizes, cursor = [], 0
    while cursor < 5:
        found = rules.diff("t", from_seq=cursor)
        sizes.append(len(found.records))
        cursor = found.next_from_seq
    assert sizes == [1, 2, 2]
