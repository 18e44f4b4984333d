"""Ranges of a replay, and what is left out of them; no Spark is needed to say so."""

from __future__ import annotations

import asyncio

import pytest

from tenure.buffer import Collector, Consumer, groups, quarantine
from tenure.errors import Conflict, Invalid
from tenure.spark.jobs.backfill import Replay, find_retained
from tenure.spark.jobs.plan import Limits, Planned
from tenure.testing.simstore import SimStore
from tests.kit.buffers import QUICK, produced


@pytest.fixture
def store() -> SimStore:
    """Six batches."""
    store = SimStore()
    asyncio.run(produced(store, *([b"%d" % number] for number in range(6))))
    return store


def replay(store: SimStore, first: int, last: int, *, group: str = "default", batches_max: int = 4_096) -> Replay:
    kept = find_retained(store, first, last, settings=QUICK)
    assert kept is not None
    return Replay(store, kept, group=group, limits=Limits(batches_max=batches_max), settings=QUICK)


def give_up(store: SimStore, *seqs: int, group: str = "default") -> None:
    for seq in seqs:
        asyncio.run(quarantine(store, seq, reason="gone", group=group, settings=QUICK))


async def acknowledged(store: SimStore, through: int, *, group: str = "default") -> None:
    async with Consumer(store, group=group, settings=QUICK, collect=False) as consumer:
        await consumer.descriptors(0, through + 1)
        await consumer.ack_through(through)


def shown(planned: Planned) -> tuple[int, int, list[int]]:
    return planned.low, planned.high, [each.seq for each in planned.descriptors]


def test_a_replay_leaves_out_what_the_group_gave_up(store: SimStore):
    give_up(store, 2)
    assert shown(replay(store, 0, 4).planned(0)) == (0, 4, [0, 1, 3, 4])
    assert shown(replay(store, 0, 4, group="other").planned(0)) == (0, 4, [0, 1, 2, 3, 4])


def test_a_batch_that_was_acknowledged_long_ago_can_be_given_up_for_a_replay(store: SimStore):
    """It was whole when the regular job read it, and is damaged now."""
    asyncio.run(acknowledged(store, 4))
    give_up(store, 2)
    assert shown(replay(store, 1, 3).planned(1)) == (1, 3, [1, 3])
    asyncio.run(acknowledged(store, 5))


def test_a_replay_begins_behind_batches_that_were_given_up_and_its_commit_follows_the_table(store: SimStore):
    give_up(store, 2, 3)
    behind = replay(store, 4, 5)
    assert behind.begin(1) == 2
    assert shown(behind.planned(2)) == (2, 5, [4, 5])
    with pytest.raises(Conflict, match="quarantine") as caught:
        behind.begin(0)
    assert (caught.value.code, caught.value.detail) == ("sink_moved", {"last": 0})
    assert [behind.begin(last) for last in (None, 3, 4, 9)] == [4, 4, 5, 10]


def test_a_replay_begins_behind_batches_that_were_given_up_and_are_not_kept_any_more(store: SimStore):
    asyncio.run(acknowledged(store, 1))
    give_up(store, 2)
    asyncio.run(Collector(store, settings=QUICK).run_once())
    with pytest.raises(Invalid) as caught:
        replay(store, 2, 5)
    assert caught.value.code == "range_gone"
    behind = replay(store, 3, 5, batches_max=2)
    assert [shown(behind.planned(begin)) for begin in (behind.begin(1), 5)] == [(2, 4, [3, 4]), (5, 5, [5])]


def test_a_stretch_of_a_replay_that_was_given_up_whole_is_an_empty_range(store: SimStore):
    give_up(store, 2, 3)
    short = replay(store, 0, 5, batches_max=2)
    assert [shown(short.planned(begin)) for begin in (0, 2, 4)] == [(0, 1, [0, 1]), (2, 3, []), (4, 5, [4, 5])]


def test_a_group_is_not_needed_to_give_a_batch_up(store: SimStore):
    assert asyncio.run(groups(store, settings=QUICK)) == []
    give_up(store, 1)
    assert shown(replay(store, 0, 2).planned(0)) == (0, 2, [0, 2])
