"""Ten thousand jobs, four workers with two endpoints, and a leader that is lost five times and hands over once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.worker.chaos import Flow
from tests.acceptance.worker.chaos_check import judge
from tests.acceptance.worker.chaos_log import read_log
from tests.cluster.cluster import cluster_on_files
from tests.cluster.fleet import ClusterFleet, split_forgotten

WORKERS = 4
LEASE_MS = 30_000
LOSSES = ("kill", "stop", "hand over", "kill", "stop", "kill")


def run(fleet: ClusterFleet, *, count: int) -> Flow:
    """Let all jobs flow, and lose the leader after each equal part of them."""
    part = count // (len(LOSSES) + 1)
    orders = [("thread" if number % 5 == 0 else "loop", {"id": f"job-{number}"}) for number in range(count)]
    fleet.start(WORKERS)
    fleet.until(lambda: fleet.server.call("GET", "/v0/topics/thread").status_code == 200, "the queues are there")
    flow = Flow(fleet.server.address, orders)
    flow.start()
    try:
        for index, how in enumerate(LOSSES, start=1):
            flow.allow(part * (index + 1))
            fleet.until_ended(part * index - part // 2)
            fleet.lose_the_leader(how)
        flow.finish()
        fleet.until(fleet.empty, "all jobs are done")
    finally:
        flow.abandon()
    fleet.end()
    return flow


@pytest.mark.full
@pytest.mark.timeout(600)
def test_workers_lose_their_leader_five_times_and_repeat_only_what_lost_its_lease(tmp_path: Path):
    with cluster_on_files(tmp_path, members=2) as cluster:
        fleet = ClusterFleet(tmp_path, cluster, seed=1, lease_ms=LEASE_MS)
        try:
            flow = run(fleet, count=10_000)
        finally:
            fleet.close()
        logged = read_log(fleet.server.home)
    known, forgotten = split_forgotten(fleet.noted, logged)
    fates = {worker.node: worker.story for worker in fleet.workers}
    verdict = judge(known, logged, sent=flow.sent, acknowledged=flow.acknowledged, fates=fates)
    print(f"{verdict}; {len(forgotten)} lines under leases that died with their leader; {dict(fleet.done)}")
    assert len(flow.acknowledged) == 10_000
    assert not verdict.never_handled, verdict.never_handled[:10]
    assert not verdict.problems, verdict.problems[:10]
    assert verdict.report.ok, str(verdict.report)
    assert fleet.done.total() == len(LOSSES)
