"""The live and the dead of a topic, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.core.config import DEFAULTS
from tenure.core.ranges import each
from tenure.core.topic import Topic

HEAD = 60


def make(head_seq: int = HEAD) -> Topic:
    topic = Topic(1, "t", DEFAULTS)
    topic.head_seq = head_seq
    return topic


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
