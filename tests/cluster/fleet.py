"""A fleet of `tenure worker` processes that know every member, and the leaders that they lose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tenure.contract.records import parse_lease_id
from tests.acceptance.worker.chaos import Fleet, Noted
from tests.acceptance.worker.chaos_log import Logged
from tests.cluster.cluster import Cluster

__all__ = ["ClusterFleet", "split_forgotten"]


class Leading:
    """Whichever member leads, as a fleet sees its broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.address = cluster.url
        self.home = cluster.members[0].home

    def start(self) -> None:
        self._cluster.start()

    def kill(self) -> None:
        self._cluster.wait_for_leader()[0].down()

    def call(self, method: str, path: str) -> httpx.Response:
        return self._cluster.wait_for_leader()[0].call(method, path)

    def ok(self, method: str, path: str) -> Any:
        return self._cluster.wait_for_leader()[0].ok(method, path)

    def queue(self, name: str) -> dict[str, int]:
        return self._cluster.wait_for_leader()[0].queue(name)

    def is_done(self, queue: str) -> bool:
        counters = self.queue(queue)
        return not (counters["ready"] or counters["in_flight"] or counters["delayed"])

    def terminate(self) -> int:
        """Stop the members; ``home`` is then the directory of the last leader."""
        self.home = self._cluster.wait_for_leader()[0].home
        problems = self._cluster.stop()
        assert not problems, problems
        return 0

    def close(self) -> None:
        """The cluster is closed by who made it."""


class ClusterFleet(Fleet):
    """Workers with every endpoint. `lose_the_leader` takes the next of a few ways."""

    def __init__(self, directory: Path, cluster: Cluster, *, seed: int, lease_ms: int) -> None:
        super().__init__(directory, Random(seed), server=Leading(cluster), lease_ms=lease_ms)
        self._cluster = cluster

    def lose_the_leader(self, how: str) -> None:
        """Lose it, go on until another leads, and let the lost one come back as a follower."""
        ways: dict[str, Callable[[], None]] = {"kill": self._kill, "stop": self._stop, "hand over": self._hand_over}
        self._cluster.wait_for_standbys(count=1)
        ways[how]()
        self._cluster.wait_for_standbys()
        self.done[how] += 1

    def _kill(self) -> None:
        leader, epoch = self._cluster.wait_for_leader()
        leader.down()
        self._cluster.wait_for_leader(epoch_min=epoch + 1)
        leader.up()

    def _stop(self) -> None:
        leader, epoch = self._cluster.wait_for_leader()
        leader.pause()
        self._cluster.wait_for_leader(epoch_min=epoch + 1)
        leader.resume()

    def _hand_over(self) -> None:
        leader, epoch = self._cluster.wait_for_successor()
        leader.ok("POST", "/v0/cluster/handover", {})
        self._cluster.wait_for_leader(epoch_min=epoch + 1)


def split_forgotten(noted: list[Noted], logged: Logged) -> tuple[list[Noted], list[Noted]]:
    """Return what ran under leases of the log, and under leases that died with the leader which gave them.

    A lease that is not durable may be younger than the last link of its leader. The last leader has forgotten none.
    """
    last = max(parse_lease_id(line.lease) >> 40 for line in noted)
    kept, forgotten = list[Noted](), list[Noted]()
    for line in noted:
        is_known = logged.held(line.queue, line.seq, line.lease) is not None
        is_old = parse_lease_id(line.lease) >> 40 < last
        (forgotten if is_old and not is_known and line.taken is not True else kept).append(line)
    return kept, forgotten
