"""That a run would find something: histories and directories with one thing wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

from tenure import Broker
from tenure.contract.records import lease_id
from tenure.testing import History
from tests.cluster.nemesis import FAULTS, NETWORK_FAULTS, schedule
from tests.cluster.verdict import compare_folds, epochs, judge


def delivered(history: History, topic: str, *, epoch: int, at: int, deliveries: int = 1) -> str:
    """Record a delivery of the one job of a topic under a lease of an epoch; return the lease."""
    lease = lease_id((epoch << 40) + deliveries)
    history.delivery(
        topic, 1, f"{topic}-1", lease=lease, node=str(at), deliveries=deliveries, at=at, deadline=at + 1_000
    )
    return lease


def twice(topic: str, *, epoch: int) -> History:
    """Return the history of a job that is given to a second worker while the first one's lease runs."""
    history = History()
    history.produce([f"{topic}-1"], "ok", topic=topic, seqs=[1], by="p")
    delivered(history, topic, epoch=1, at=100)
    lease = delivered(history, topic, epoch=epoch, at=200, deliveries=2)
    history.ack(topic, 1, lease=lease, outcome="ok", at=300)
    return history


def test_a_change_of_leader_excuses_a_young_lease_only_where_leases_are_not_durable():
    assert epochs(twice("brisk-a", epoch=2)) == {1: 100, 2: 200}
    assert all(report.ok for report in judge(twice("brisk-a", epoch=2)).values())
    assert judge(twice("brisk-a", epoch=1))["all"].overlapping
    assert judge(twice("careful-a", epoch=2))["durable leases"].overlapping


def test_a_change_of_leader_excuses_no_lost_job_and_no_undone_ack():
    history = twice("brisk-a", epoch=2)
    history.produce(["brisk-a-2"], "ok", topic="brisk-a", seqs=[2], by="p")
    delivered(history, "brisk-a", epoch=3, at=5_000, deliveries=3)
    report = judge(history)["all"]
    assert report.lost == ["brisk-a-2"]
    assert report.undone


async def test_members_with_another_state_are_found(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    async with await Broker.open(first) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": 86_400_000})
        await broker.produce("q", [b"1", b"2"])
        await broker.claim("q", node="w", max_count=1)
    shutil.copytree(first, second)
    assert compare_folds([first, second]) == []
    async with await Broker.open(second) as broker:
        await broker.ack("q", node="w", seqs=[1])
    (problem,) = compare_folds([first, second])
    assert problem.startswith("second and first fold to different states: q ")


def test_a_seed_makes_one_schedule_of_every_kind():
    long = schedule(1, count=400)
    assert {fault.what for fault in long} == set(FAULTS)
    assert long == schedule(1, count=400) != schedule(2, count=400)
    assert schedule(1, count=5) == long[:5]
    assert set(NETWORK_FAULTS) < set(FAULTS)
    assert {fault.what for fault in schedule(1, count=50, kinds=("hand_over",))} == {"hand_over"}
