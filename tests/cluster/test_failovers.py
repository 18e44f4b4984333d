"""Real members, 24 clients, and leaders that are killed, stopped, cut off and asked to hand over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.cluster import cluster_on_files, cluster_on_s3
from tests.cluster.nemesis import Fault, schedule
from tests.cluster.round import SETTINGS, play

SHORT = [
    Fault("hand_over", 0.2, 0, burns=False),
    Fault("kill_leader", 0.2, 0.2, burns=True),
    Fault("stop_leader", 0.2, 3.0, burns=False),
    Fault("kill_leader", 0.2, 2.0, burns=False),
    Fault("restart_leader", 0.2, 0, burns=False),
]
FULL_FAILOVERS = 20
FULL_FAULTS = 10


@pytest.mark.timeout(300)
def test_leaders_come_and_go_and_nothing_is_lost_and_no_ack_undone(tmp_path: Path):
    with cluster_on_files(tmp_path, **SETTINGS) as cluster:
        played = asyncio.run(play(cluster, tmp_path, seed=1, faults=SHORT))
    print(played.text())
    assert played.ok, played.text()
    assert played.nemesis.failovers >= 4
    assert all(report.acked > 100 for report in played.reports.values())


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_twenty_failovers_on_a_bucket_behind_bad_networks_lose_nothing_and_undo_no_ack(tmp_path: Path):
    failovers, seed = 0, 0
    while failovers < FULL_FAILOVERS:
        seed += 1
        directory = tmp_path / str(seed)
        with cluster_on_s3(directory, seed=seed, **SETTINGS) as cluster:
            faults = schedule(seed, count=FULL_FAULTS)
            played = asyncio.run(play(cluster, directory, seed=seed, faults=faults))
        print(played.text())
        assert played.ok, played.text()
        failovers += played.nemesis.failovers
