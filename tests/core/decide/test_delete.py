"""Deleting records: below a seq, by tag, by seq, and all of these together."""

from __future__ import annotations

import pytest

from tenure import Invalid, NotFound
from tenure.testing.clock import ManualClock
from tests.kit.brokers import seqs, tagged
from tests.kit.rules import Rules, make_queue, numbers, read, snapshot


def test_before_seq_deletes_what_lies_below(rules: Rules) -> None:
    rules.produce("t", [b"one", b"two", b"three"])
    gone = rules.delete_records("t", before_seq=3)
    assert (gone.topic, gone.deleted, gone.earliest_seq, gone.head_seq, gone.count, gone.bytes) == ("t", 2, 3, 3, 1, 5)
    assert seqs(read(rules, "t")) == [3]


@pytest.mark.parametrize("match", ["a.1", ["tag", "Eq", "a.1"], ("tag", "Eq", "a.1")])
def test_a_tag_is_matched_exactly(rules: Rules, match: object) -> None:
    rules.produce("t", tagged("a.1", "a.10", None, "a.1", ""))
    assert (rules.delete_records("t", match=match)).deleted == 2
    assert seqs(read(rules, "t")) == [2, 3, 5]


def test_a_glob_matches_what_begins_alike(rules: Rules) -> None:
    rules.produce("t", tagged("a.1", "a.10", None, "b", "a", ""))
    assert (rules.delete_records("t", match=["tag", "Glob", "a.*"])).deleted == 2
    assert (rules.delete_records("t", match=["tag", "Glob", "*"])).deleted == 3
    assert seqs(read(rules, "t")) == [3], "an untagged record never matches"


@pytest.mark.parametrize("glob", ["", "a", "*a", "a*b*", "a**", "*a*"])
def test_a_glob_that_does_not_end_in_its_one_asterisk_is_refused(rules: Rules, glob: str) -> None:
    rules.produce("t", tagged("a"))
    with pytest.raises(Invalid):
        rules.delete_records("t", match=["tag", "Glob", glob])


def test_an_asterisk_in_a_plain_tag_is_itself(rules: Rules) -> None:
    rules.produce("t", tagged("a*", "ab"))
    assert (rules.delete_records("t", match="a*")).deleted == 1


def test_seqs_are_deleted_one_by_one_and_repeats_count_once(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3", b"4"])
    assert (rules.delete_records("t", seqs=[2, 4, 2, 99, 0])).deleted == 2
    assert seqs(read(rules, "t")) == [1, 3]


def test_conditions_are_anded(rules: Rules) -> None:
    rules.produce("t", tagged("a", "a", "b", "a", "b", "a"))
    gone = rules.delete_records("t", before_seq=6, match="a", seqs=[1, 3, 4, 6])
    assert gone.deleted == 2
    assert seqs(read(rules, "t")) == [2, 3, 5, 6]
    assert (rules.delete_records("t", before_seq=4, match="b")).deleted == 1
    assert (rules.delete_records("t", before_seq=3, seqs=[2, 5])).deleted == 1
    assert (rules.delete_records("t", match="a", seqs=[5, 6])).deleted == 1
    assert seqs(read(rules, "t")) == [5]


def test_no_condition_at_all_is_refused(rules: Rules) -> None:
    rules.produce("t", [b"1"])
    with pytest.raises(Invalid):
        rules.delete_records("t")
    assert rules.topic("t").count == 1


def test_a_delete_that_finds_nothing_changes_nothing(rules: Rules) -> None:
    rules.produce("t", tagged("a"))
    before = snapshot(rules)
    for condition in ({"before_seq": 1}, {"match": "b"}, {"seqs": [7]}, {"before_seq": 0, "match": "a"}):
        assert (rules.delete_records("t", **condition)).deleted == 0
    assert snapshot(rules) == before


def test_a_delete_of_an_absent_topic_is_not_found(rules: Rules) -> None:
    with pytest.raises(NotFound):
        rules.delete_records("t", before_seq=1)


def test_deleting_twice_deletes_once(rules: Rules) -> None:
    rules.produce("t", tagged("a", "b", "a"))
    assert (rules.delete_records("t", match="a")).deleted == 2
    assert (rules.delete_records("t", match="a")).deleted == 0
    assert rules.topic("t").count == 1


def test_a_delete_is_of_its_moment_and_spares_what_comes_later(rules: Rules) -> None:
    rules.produce("t", tagged("a"))
    rules.delete_records("t", match="a", before_seq=99)
    rules.produce("t", tagged("a"))
    assert seqs(read(rules, "t")) == [2]


def test_a_deleted_job_is_gone_from_every_place_of_its_queue(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=6, dlq_strategy="block")
    rules.claim("q", node="w", max_count=4)
    rules.nack("q", node="w", seqs=[1])
    rules.nack("q", node="w", seqs=[2], delay_ms=1000)
    rules.nack("q", node="w", seqs=[3], dead=True)
    assert (rules.delete_records("q", seqs=[1, 2, 3, 4, 5])).deleted == 5
    counted = numbers(rules)
    assert [counted[name] for name in ("ready", "in_flight", "delayed", "parked")] == [1, 0, 0, 0]
    assert (rules.ack("q", node="w", seqs=[4])).skipped == [4], "although it was held"
    clock.advance(100_000)
    assert (rules.claim("q", node="w", max_count=9)).seqs == [6]
