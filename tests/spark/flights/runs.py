"""Runs of a pipeline by its command, killed at moments that a seed chooses."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tenure.buffer import GroupStat, groups
from tenure.objects.background import background
from tests.spark.command import Command, running
from tests.spark.crash_cluster import Cluster
from tests.spark.flights.pipelines import GROUP

__all__ = ["WITHIN_S", "Runs"]

WITHIN_S = 1_800

ON_CLUSTER = (
    "spark.driver.host=127.0.0.1",
    "spark.executor.memory=600m",
    "spark.sql.shuffle.partitions=2",
    "spark.databricks.delta.snapshotPartitions=2",
)
LONGEST_S = 4.0
"""A kill comes so long after a range that was acknowledged at most: within the next ones."""


class Runs:
    """The runs of one pipeline file, one after the other. Each is at work until it is killed or has nothing left."""

    def __init__(
        self, file: Path, url: str, *, seed: int, cluster: Cluster | None = None, longest_s: float = LONGEST_S
    ) -> None:
        self._file, self._url, self._cluster, self._longest_s = file, url, cluster, longest_s
        self._dice = random.Random(seed)
        self.kills = 0

    def kill_the_driver(self, *options: str) -> None:
        """Start a run, and kill it in the middle of a range behind the first one that it acknowledges."""
        with self._started(*options) as command:
            self.kill(command)

    def kill(self, command: Command) -> None:
        """Kill a run, its driver and the JVM, within a range behind the next one that it acknowledges."""
        self._until_moved(command)
        self._until_the_moment(command)
        assert self.lag() > 0, "it was through before it was killed"
        command.kill()
        self.kills += 1

    def kill_an_executor(self) -> None:
        """Kill one in the middle of a run, which goes on and ends well by itself."""
        assert self._cluster is not None
        with self._started("--once") as command:
            self._until_moved(command)
            self._until_the_moment(command)
            self._cluster.kill_an_executor()
            self.kills += 1
            code, said, errors = command.ended(WITHIN_S)
            assert code == 0, said + errors

    def run(self) -> dict[str, Any]:
        """Run it to its end, and return what it reports."""
        with self._started("--once", "--json") as command:
            code, said, errors = command.ended(WITHIN_S)
            assert code == 0, said + errors
            found: dict[str, Any] = json.loads(said)
            return found

    def following(self) -> AbstractContextManager[Command]:
        """A run that goes on when it has nothing left."""
        return self._started("--follow")

    def until(self, command: Command, seen: Callable[[], bool]) -> None:
        """Wait for something that a run does, for as long as a busy machine may take."""
        until_s = time.monotonic() + WITHIN_S
        while not seen():
            assert command.process.poll() is None, command.process.communicate()
            assert time.monotonic() < until_s, "it did not come that far"
            time.sleep(0.05)

    def lag(self) -> int:
        """How many batches the pipeline has not acknowledged."""
        group = self._group()
        return 1 if group is None else group.lag_batches

    def epoch(self) -> int:
        """A number that each run raises when it takes the group over."""
        group = self._group()
        return -1 if group is None else group.epoch

    def _started(self, *options: str) -> AbstractContextManager[Command]:
        cluster, words = self._cluster, ("pipeline", "run", self._file, *options)
        if cluster is None:
            return running(*words)
        return running(*words, master=cluster.url, conf=ON_CLUSTER, packages=cluster.packages)

    def _until_moved(self, command: Command) -> None:
        before = self._acked()
        self.until(command, lambda: self._acked() != before)

    def _until_the_moment(self, command: Command) -> None:
        """When a kill comes is what the tests are about, not what they wait for."""
        until_s = time.monotonic() + self._dice.uniform(0, self._longest_s)
        while time.monotonic() < until_s and command.process.poll() is None and self.lag() > 1:
            time.sleep(0.05)

    def _acked(self) -> int | None:
        group = self._group()
        return None if group is None else group.last_acked

    def _group(self) -> GroupStat | None:
        found = background().run(groups(self._url))
        return next((each for each in found if each.group == GROUP), None)
