"""Which jobs the next claim gets, and how holes are counted, against the plainest way to say it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract.config import TopicConfig
from tenure.core.ready_jobs import ack_holes, choose, claimable_count, next_ready, ready_count
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each
from tenure.core.state.topic import Topic
from tenure.errors import Overloaded

HEAD = 40


def make(*, head_seq: int = HEAD, cursor: int = 1, **config: Any) -> tuple[Topic, Queue]:
    topic, queue = Topic(1, "q", TopicConfig(type="queue", **config)), Queue()
    topic.queue = queue
    topic.head_seq = topic.count = head_seq
    queue.cursor = cursor
    return topic, queue


def bury(topic: Topic, *seqs: int) -> None:
    for seq in seqs:
        topic.bury(seq, seq + 1)
        topic.count -= 1


PLACES = st.lists(st.sampled_from(["fresh", "dead", "delayed", "parked"]), min_size=HEAD, max_size=HEAD)


@given(PLACES, st.integers(1, HEAD + 1), st.integers(1, 60))
def test_fresh_jobs_are_those_that_are_nowhere_else(places: list[str], cursor: int, max_count: int) -> None:
    topic, queue = make(cursor=cursor)
    for seq, place in enumerate(places, 1):
        if place == "dead":
            bury(topic, seq)
        elif place == "delayed":
            queue.delayed.add(seq)
        elif place == "parked":
            queue.parked[seq] = "why"
    fresh = [seq for seq, place in enumerate(places, 1) if place == "fresh" and seq >= cursor]
    runs, poisoned = choose(topic, queue, max_count)
    assert (list(each(runs)), poisoned) == (fresh[:max_count], [])
    assert next_ready(topic, queue) == (fresh[0] if fresh else None)
    assert all(runs[i] + runs[i + 1] < runs[i + 2] for i in range(0, len(runs) - 2, 2)), "runs are apart"


def test_what_came_back_goes_first_and_joins_the_fresh_in_one_run() -> None:
    topic, queue = make(cursor=10)
    queue.reclaim.update([3, 4, 9])
    assert next_ready(topic, queue) == 3
    assert choose(topic, queue, 2) == ([3, 2], [])
    assert choose(topic, queue, 5) == ([3, 2, 9, 3], [])
    assert choose(topic, queue, 1000) == ([3, 2, 9, HEAD - 8], [])


@pytest.mark.parametrize(
    ("config", "poisoned"),
    [
        ({"max_deliveries": 2, "dead_letter": "dead"}, [4, 9]),
        ({"max_deliveries": 2, "dlq_strategy": "block"}, [4, 9]),
        ({"max_deliveries": 2, "dlq_strategy": "block_and_dlq", "dead_letter": "dead"}, [4, 9]),
        ({"max_deliveries": 2}, []),
        ({"dead_letter": "dead"}, []),
    ],
)
def test_jobs_delivered_often_enough_are_poisoned_where_there_is_a_place_for_them(
    config: dict[str, Any], poisoned: list[int]
) -> None:
    topic, queue = make(cursor=10, head_seq=9, **config)
    queue.reclaim.update([3, 4, 5, 9])
    queue.deliveries = {3: 1, 4: 2, 5: 1, 9: 7}
    runs, found = choose(topic, queue, 10)
    assert found == poisoned
    assert list(each(runs)) == [seq for seq in (3, 4, 5, 9) if seq not in poisoned]


def test_the_search_for_poison_ends_with_what_is_wanted() -> None:
    topic, queue = make(cursor=30, max_deliveries=1, dlq_strategy="block")
    queue.reclaim.update(range(1, 20))
    queue.deliveries = dict.fromkeys(range(2, 20), 1)
    assert choose(topic, queue, 1) == ([1, 1], [])


def test_no_more_jobs_are_chosen_than_may_be_in_flight() -> None:
    topic, queue = make(max_in_flight=3)
    assert choose(topic, queue, 9) == ([1, 3], [])
    queue.in_flight = dict.fromkeys([1, 2])  # type: ignore[assignment]
    queue.cursor = 3
    assert claimable_count(topic, queue) == 1
    queue.in_flight[3] = None  # type: ignore[assignment]
    assert claimable_count(topic, queue) == 0
    with pytest.raises(Overloaded):
        choose(topic, queue, 9)


def test_ready_jobs_of_an_fsync_queue_are_those_that_are_synced() -> None:
    topic, queue = make(durability="fsync")
    topic.durable_seq = 30
    bury(topic, 2, 35)
    queue.delayed.update([3, 36])
    assert ready_count(topic, queue) == 28
    assert list(each(choose(topic, queue, 100)[0])) == [1, *range(4, 31)]


@given(PLACES, st.data())
def test_holes_agree_with_counting_them_by_hand(places: list[str], data: st.DataObject) -> None:
    topic, queue = make()
    dead = [seq for seq, place in enumerate(places, 1) if place == "dead"]
    for seq in dead:
        bury(topic, seq)
    queue.acked_max = data.draw(st.sampled_from(dead)) if dead else 0
    queue.delayed.update(seq for seq, place in enumerate(places, 1) if place == "delayed")
    queue.parked = {seq: "why" for seq, place in enumerate(places, 1) if place == "parked"}
    holes, inside = 0, False
    for seq in range(1, queue.acked_max + 1):
        unacked = places[seq - 1] == "fresh"
        holes += unacked and not inside
        inside = unacked
    assert ack_holes(topic, queue) == holes


def test_above_the_hole_cap_only_what_came_back_is_handed_out() -> None:
    topic, queue = make(cursor=20, max_ack_holes=1)
    queue.acked_max = 9
    bury(topic, 5, 9)
    queue.reclaim.update([3, 7])
    assert choose(topic, queue, 10) == ([3, 1, 7, 1], [])
    queue.reclaim.clear()
    with pytest.raises(Overloaded):
        choose(topic, queue, 10)
    queue.cursor = HEAD + 1
    assert choose(topic, queue, 10) == ([], []), "nothing fresh is there to refuse"
