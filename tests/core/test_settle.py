"""Which of the seqs a worker names it really holds."""

from __future__ import annotations

import pytest

from tenure.contract.config import TopicConfig
from tenure.contract.records import lease_id, parse_lease_id
from tenure.core.decide.settle import select_held
from tenure.core.events import Claimed
from tenure.core.state.queue import Queue
from tenure.core.state.topic import Topic
from tenure.errors import Invalid, LeaseLost


def make() -> tuple[Topic, Queue]:
    """``a`` holds 1-3 under lease 16 and 4 under lease 17, ``b`` holds 5 under lease 18; 6 is free, 7 is gone."""
    topic, queue = Topic(1, "q", TopicConfig(type="queue")), Queue()
    topic.queue = queue
    topic.head_seq = topic.count = 7
    topic.bury(7, 8)
    for number, node, runs in ((16, "a", [1, 3]), (17, "a", [4, 1]), (18, "b", [5, 1])):
        queue.hold(Claimed(0, 1, number, node, 100, runs))
    return topic, queue


def test_a_node_holds_what_it_holds_in_the_order_it_names_it() -> None:
    topic, queue = make()
    assert select_held(topic, queue, node="a", seqs=[3, 5, 1, 6, 4, 7, 99]) == ([3, 1, 4], [5, 6, 7, 99])
    assert select_held(topic, queue, node="a", seqs=[2]) == ([2], [])
    assert select_held(topic, queue, node="b", seqs=[2]) == ([], [2])
    assert select_held(topic, queue, node="a", seqs=range(1, 4)) == ([1, 2, 3], [])


def test_a_lease_stands_for_everything_under_it() -> None:
    topic, queue = make()
    assert select_held(topic, queue, node="a", seqs=None, lease=lease_id(16)) == ([1, 2, 3], [])
    assert select_held(topic, queue, node="b", seqs=None, lease=lease_id(16)) == ([], [])
    assert select_held(topic, queue, node="a", seqs=None, lease="lease_99") == ([], [])


def test_fences_hold_one_by_one_or_all_together() -> None:
    topic, queue = make()
    ids = [lease_id(16), lease_id(16), lease_id(18)]
    assert select_held(topic, queue, node="a", seqs=[1, 4, 5], lease_ids=ids) == ([1], [4, 5])
    assert select_held(topic, queue, node="a", seqs=[1, 4], lease=lease_id(17)) == ([4], [1])
    both = select_held(topic, queue, node="a", seqs=[1, 4], lease=lease_id(16), lease_ids=[lease_id(16), lease_id(17)])
    assert both == ([1], [4]), "given both, both must fit"


def test_strict_minds_only_what_is_still_alive() -> None:
    topic, queue = make()
    assert select_held(topic, queue, node="a", seqs=[1, 7, 99], strict=True) == ([1], [7, 99])
    with pytest.raises(LeaseLost) as error:
        select_held(topic, queue, node="a", seqs=[1, 5, 6, 7], strict=True)
    assert error.value.detail == {"skipped": [5, 6]}


def test_a_lease_id_is_a_number_in_disguise() -> None:
    for number in (1, 2**40 + 1, 2**63 - 1):
        assert parse_lease_id(lease_id(number)) == number
    for other in ("", "lease_", "16", "lease_xyz", "LEASE_1f", "lease_" + "f" * 100):
        assert parse_lease_id(other) == 0


def test_fences_must_be_as_many_as_seqs() -> None:
    topic, queue = make()
    for ids in ([], [lease_id(16)], [lease_id(16)] * 3):
        with pytest.raises(Invalid):
            select_held(topic, queue, node="a", seqs=[1, 2], lease_ids=ids)
