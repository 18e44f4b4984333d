"""Reading a part of a log: pages, losses and the options, without Spark and without a server."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tenure.contract.replies import ConfigInfo, Diff, ReadRecord, Tombstone, TopicInfo
from tenure.errors import Invalid
from tenure.spark.topic.options import read_options
from tenure.spark.topic.parts import Missed, read_part, split, to_arrow
from tenure.spark.topic.source import TopicDataSource
from tenure.spark.topic.stream_source import end_of, next_end

AT = {"url": "http://127.0.0.1:4000", "topic": "t"}
OPTIONS = read_options(AT)


class Log:
    """A server's log: seqs that live, and what it reports of those that do not."""

    def __init__(self, live: range, *, floor: int = 0, trim_seq: int = 0, page: int = 3) -> None:
        self.live = live
        self.floor = floor
        self.trim_seq = trim_seq
        self.page = page
        self.asked: list[int] = []

    def read(self, from_seq: int, limit: int) -> Diff:
        self.asked.append(from_seq)
        head = self.live[-1] if self.live else 0
        tombstone = None
        if from_seq > head:
            tombstone, from_seq = Tombstone(1, head, "recreated", head), 0
        elif from_seq + 1 < self.floor:
            tombstone = Tombstone(from_seq + 1, self.floor - 1, "cap", self.floor - 1 - from_seq)
        elif from_seq < self.trim_seq:
            tombstone = Tombstone(self.trim_seq, self.trim_seq, "source_trim", 7)
        seqs = [seq for seq in self.live if seq > from_seq][: min(limit, self.page)]
        records = [ReadRecord(seq, 0, msgspec.Raw(b"%d" % seq)) for seq in seqs]
        reached = seqs[-1] if seqs else head
        return Diff("t", records, reached, head, self.live[0] if self.live else 1, reached == head, tombstone)


def seqs_of(found: list[Any]) -> list[int]:
    return [record.seq for item in found if not isinstance(item, Missed) for record in item]


def lost_in(found: list[Any]) -> list[Missed]:
    return [item for item in found if isinstance(item, Missed)]


def test_a_part_that_begins_among_seqs_left_out_by_a_restore_misses_nothing():
    def read(from_seq: int, limit: int) -> Diff:
        tombstone = Tombstone(4, 99, "recreated") if 4 <= from_seq < 99 else None
        seqs = [seq for seq in (1, 2, 3, 100, 101) if seq > from_seq]
        return Diff("t", [ReadRecord(seq, 0, msgspec.Raw(b"0")) for seq in seqs], 101, 101, 1, True, tombstone)

    found = list(read_part(read, 50, 101))
    assert (seqs_of(found), lost_in(found)) == ([100, 101], [])


def test_a_part_is_read_page_by_page_and_ends_where_it_should():
    log = Log(range(1, 21))
    assert seqs_of(list(read_part(log.read, 5, 13))) == list(range(5, 14))
    assert log.asked == [4, 7, 10]


def test_what_was_evicted_is_told_once_and_only_as_far_as_the_part_goes():
    log = Log(range(11, 21), floor=11)
    found = list(read_part(log.read, 3, 15))
    assert lost_in(found) == [Missed(3, 10, "cap", 8)]
    assert seqs_of(found) == [11, 12, 13, 14, 15]
    assert list(read_part(log.read, 3, 6)) == [Missed(3, 6, "cap", 4)]


def test_what_a_routers_source_lost_is_told_by_one_part_only():
    log = Log(range(1, 21), trim_seq=9)
    assert lost_in(list(read_part(log.read, 1, 6))) == []
    assert lost_in(list(read_part(log.read, 7, 20))) == [Missed(9, 9, "source_trim", 7)]


def test_a_log_that_became_shorter_is_a_loss_and_no_endless_loop():
    assert list(read_part(Log(range(1, 5)).read, 9, 12)) == [Missed(9, 12, "recreated", 4)]
    found = list(read_part(Log(range(1, 5)).read, 3, 12))
    assert seqs_of(found) == [3, 4]
    assert lost_in(found) == [Missed(5, 12, "recreated", 8)]


def test_deleted_records_are_left_out_without_a_word():
    assert seqs_of(list(read_part(Log(range(1, 21, 4)).read, 1, 17))) == [1, 5, 9, 13, 17]


@pytest.mark.parametrize(("first", "last", "parts_max"), [(1, 1, 8), (1, 9_999, 8), (5, 1_000_003, 7), (1, 30_001, 3)])
def test_parts_cover_a_range_without_gaps_in_nearly_equal_lengths(first: int, last: int, parts_max: int):
    parts = split(first, last, parts_max=parts_max)
    assert (parts[0][0], parts[-1][1]) == (first, last)
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(parts))
    lengths = {high - low for low, high in parts}
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) <= parts_max


def test_a_loss_is_a_row_with_a_tombstone_and_no_payload():
    record = ReadRecord(12, 1_700_000_000_123, msgspec.Raw(b'{"a":1}'), "n", "tag", msgspec.Raw(b'{"m":2}'))
    (batch,) = to_arrow([Missed(3, 10, "cap", 8), [record]])
    lost, row = batch.to_pylist()
    assert lost["tombstone"] == {"gap_from": 3, "gap_to": 10, "reason": "cap", "missed": 8}
    assert (lost["seq"], lost["payload"], lost["ts"]) == (10, None, None)
    assert row["tombstone"] is None
    assert (row["seq"], row["payload"], row["meta"]) == (12, b'{"a":1}', '{"m":2}')
    assert (row["node"], row["tag"], row["ts"].timestamp()) == ("n", "tag", 1_700_000_000.123)


def info(**fields: Any) -> TopicInfo:
    return TopicInfo("t", "log", ConfigInfo(durability=fields.pop("durability", "disk")), **fields)


def test_a_stream_ends_before_what_a_power_loss_could_take_back():
    assert end_of(info(head_seq=20, durable_seq=15)) == 16
    assert end_of(info(head_seq=20, durable_seq=15, durability="memory")) == 21


@pytest.mark.parametrize(
    ("limits", "start", "end"),
    [
        ({}, 1, 1_001),
        ({"records_max": 100}, 1, 101),
        ({"records_max": 100}, 950, 1_001),
        ({"bytes_max": 500}, 1, 51),
        ({"records_max": 10, "bytes_max": 500}, 1, 11),
        ({"bytes_max": 1}, 1, 2),
    ],
)
def test_a_micro_batch_keeps_to_its_limits(limits: dict[str, int], start: int, end: int):
    told = info(head_seq=1_000, durable_seq=1_000, earliest_seq=1, count=1_000, bytes=10_000)
    assert next_end(told, start, 1_001, msgspec.structs.replace(OPTIONS, **limits)) == end


def test_seqs_that_are_gone_do_not_count_towards_a_limit():
    told = info(head_seq=1_000, durable_seq=1_000, earliest_seq=900, count=101, bytes=1_010)
    assert next_end(told, 1, 1_001, msgspec.structs.replace(OPTIONS, records_max=50)) == 950


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingSeq", "soon"),
        ("startingSeq", "0"),
        ("endingSeq", "-1"),
        ("maxRecordsPerTrigger", "0"),
        ("maxBytesPerTrigger", "1.5"),
        ("failOnDataLoss", "maybe"),
        ("apiKey", "secret-word"),
        ("token", "secret-word"),
    ],
)
def test_a_bad_option_is_named_and_its_value_is_no_secret_shown(option: str, value: str):
    with pytest.raises(Invalid) as refused:
        read_options({**AT, option: value})
    assert refused.value.code == "bad_option"
    assert option.lower() in refused.value.message.lower()
    assert "secret-word" not in refused.value.message


def test_options_are_taken_in_any_case():
    options = read_options({**AT, "startingseq": "7", "FAILONDATALOSS": "False", "EndingSeq": "9"})
    assert (options.start, options.last_seq, options.fail_on_loss) == (7, 9, False)


@pytest.mark.parametrize(("make", "missing"), [("streamReader", "stream_source"), ("streamWriter", "stream_writer")])
def test_a_spark_that_cannot_stream_says_which_one_can(monkeypatch: pytest.MonkeyPatch, make: str, missing: str):
    monkeypatch.setitem(sys.modules, f"tenure.spark.topic.{missing}", None)
    source: Any = TopicDataSource({**AT, "staging": "file:///nowhere"})
    with pytest.raises(Invalid, match=r"needs Spark 4\.[12] or later") as refused:
        source.streamReader(None) if make == "streamReader" else source.streamWriter(None, False)
    assert refused.value.code == "spark_too_old"
