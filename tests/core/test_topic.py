"""The live and the dead of a topic, against a plain set."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tenure.contract.config import DEFAULTS
from tenure.core.state import topic as topic_module
from tenure.core.state.ranges import each
from tenure.core.state.topic import Topic

HEAD = 60


def make(head_seq: int = HEAD) -> Topic:
    topic = Topic(1, "t", DEFAULTS)
    topic.head_seq = head_seq
    return topic


class CountingBitMap(BitMap64):
    """Counts how often it is packed."""

    packed_count = 0

    def run_optimize(self) -> bool:
        self.packed_count += 1
        return super().run_optimize()


BURIALS = st.lists(st.tuples(st.integers(1, HEAD), st.integers(1, 12)), max_size=25)


@given(BURIALS, st.integers(0, HEAD + 5), st.integers(0, HEAD + 5))
def test_burying_agrees_with_a_set(burials: list[tuple[int, int]], lo: int, width: int) -> None:
    topic, live = make(), set(range(1, HEAD + 1))
    for start, count in burials:
        hi = min(start + count, HEAD + 1)
        topic.bury(start, hi)
        live -= set(range(start, hi))
        assert topic.floor == min(live, default=HEAD + 1), "the floor is the first that lives"
    for seq in range(HEAD + 3):
        assert topic.is_dead(seq) == (seq not in live)
    runs = topic.live_runs(lo, lo + width)
    assert list(each(runs)) == sorted(seq for seq in live if lo <= seq < lo + width)
    assert all(runs[i] + runs[i + 1] < runs[i + 2] for i in range(0, len(runs) - 2, 2)), "runs are apart"
    lo = min(max(lo, topic.floor), HEAD + 1)
    assert topic.dead_between(lo, HEAD + 1) == sum(seq not in live for seq in range(lo, HEAD + 1))


def test_what_lies_below_the_floor_is_not_kept() -> None:
    topic = make()
    topic.bury(5, 6)
    topic.bury(3, 4)
    assert sorted(topic.dead or ()) == [3, 5]
    topic.bury(1, 5)
    assert topic.floor == 6
    assert not topic.dead


def test_a_topic_whose_last_record_went_keeps_nothing_of_them() -> None:
    topic = make()
    topic.bury(2, HEAD + 1)
    topic.bury(1, 2)
    assert (topic.floor, topic.dead, topic.tags) == (HEAD + 1, None, None)


def test_the_dead_behind_one_old_job_take_no_memory_of_their_own() -> None:
    topic = make(head_seq=1_000_000)
    for seq in range(2, 1_000_001):
        topic.bury(seq, seq + 1)
    assert topic.dead is not None
    assert len(topic.dead.serialize()) < 2 * 8_192 + 1_000, "of 16 containers, at most the last two are not packed"


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_dead_are_packed_at_the_same_events_whether_or_not_they_were_written_out_between(stride: int) -> None:
    lived, loaded = make(head_seq=300_000), make(head_seq=300_000)
    order = list(range(2, 300_001, stride))
    for i in range(0, len(order), 5_000):
        Random(i).shuffle(part := order[i : i + 5_000])
        for topic in (lived, loaded):
            for seq in part:
                topic.bury(seq, seq + 1)
        assert lived.dead is not None
        assert loaded.dead is not None
        assert lived.dead.serialize() == loaded.dead.serialize()
        loaded.dead = BitMap64.deserialize(loaded.dead.serialize())


def test_packing_the_dead_costs_each_burial_the_same_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "_PACK_BITS", 4)

    def packs(head_seq: int) -> int:
        topic = make(head_seq)
        topic.dead = counting = CountingBitMap()
        counting.packed_count = 0
        for seq in range(2, head_seq):
            topic.bury(seq, seq + 1)
        return counting.packed_count

    assert packs(1_000) == 1_000 // 16
    assert packs(10_000) == 10_000 // 256, "each looks at sixteen times as much"


def test_burying_twice_is_burying_once() -> None:
    topic = make()
    topic.bury(1, 10)
    topic.bury(1, 5)
    topic.bury(4, 12)
    assert (topic.floor, topic.live_runs(1, 99)) == (12, [12, HEAD - 11])


def test_seqs_not_given_out_yet_are_dead() -> None:
    topic = make(3)
    assert [topic.is_dead(seq) for seq in (0, 1, 3, 4)] == [True, False, False, True]
    assert topic.live_runs(0, 100) == [1, 3]
    assert make(0).live_runs(0, 100) == []


def test_the_eviction_floor_is_the_higher_of_the_two() -> None:
    topic = make()
    assert topic.evict_floor == 0
    topic.cap_floor, topic.ttl_floor = 5, 9
    assert topic.evict_floor == 9


def test_only_an_fsync_topic_hides_what_is_not_durable() -> None:
    topic = make(9)
    topic.durable_seq = 4
    assert topic.visible_seq == 9
    topic.config = type(DEFAULTS)(durability="fsync")
    assert topic.visible_seq == 4
