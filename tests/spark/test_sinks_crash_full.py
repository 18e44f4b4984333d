"""The long crash suite: a million entries into every sink, with each reader, and everything that may die dying.

``TENURE_CRASH_ENTRIES`` makes it shorter, ``TENURE_CRASH_SINKS`` names the sinks.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.crash_cluster import Cluster, running_cluster
from tests.spark.crash_driver import drive
from tests.spark.crash_kill import SMALL
from tests.spark.crash_sinks import Case, known
from tests.spark.crash_support import Child, each_has_moved, held, produced, sleep_until_it_is_killed
from tests.spark.pg import running_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = known()
ENTRIES = int(os.environ.get("TENURE_CRASH_ENTRIES", "1000000"))
BATCHES, RANGES, KILLS = 100, 25, 5
READERS = ("jvm", "python")
BY_NAME = {case.name: case for case in CASES}
ON_CLUSTER = {
    **SMALL,
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.executor.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.task.maxFailures": "10",
    "spark.excludeOnFailure.enabled": "false",
}
SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "1s",  # also where a stage has a single task, as the small tables' has
}

pytestmark = [pytest.mark.full, pytest.mark.timeout(3_500)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def jobs_for(folder: Path, postgres: str, *, entries: int, readers: tuple[str, ...] = READERS) -> tuple[Any, Any]:
    """A job for each sink and reader, each with a table and a group of its own, on one buffer; and the sum."""
    names = [f"{case.name}-{reader}" for case in CASES for reader in readers]
    url, expected = produced(folder, entries, batch=entries // BATCHES, groups=names)
    jobs = []
    for case in CASES:
        for reader in readers:
            place = folder / f"{case.name}-{reader}"
            place.mkdir()
            about = {"case": case.name, "group": place.name, "place": case.at(place, postgres), "reader": reader}
            jobs.append({**about, "buffer": url, "entries_max": entries // RANGES, "marks": str(folder)})
    return jobs, expected


def so_many(ranges: int) -> Callable[[list[str]], bool]:
    """Whether so many ranges are in the tables, of whichever jobs."""
    return lambda lines: sum(line.startswith("range ") for line in lines) >= ranges


def all_hold(spark: SparkSession, jobs: list[dict[str, Any]], expected: Any) -> None:
    for job in jobs:
        assert held(spark, BY_NAME[job["case"]], job["place"]) == expected, job["group"]


def test_a_million_entries_survive_five_kills_at_random(spark: SparkSession, postgres: str, tmp_path: Path):
    jobs, expected = jobs_for(tmp_path, postgres, entries=ENTRIES)
    dice = random.Random(54)
    for _ in range(KILLS):
        ranges = dice.randint(1, len(jobs) * RANGES // (KILLS + 1))
        child = Child(jobs, conf=SMALL)
        try:
            assert child.wait_for(so_many(ranges)), child.lines
            sleep_until_it_is_killed(child, dice.uniform(0, 1))
            assert "ended" not in child.lines
        finally:
            child.kill()
    Child(jobs, conf=SMALL).end(1_800)
    all_hold(spark, jobs, expected)


@pytest.mark.parametrize("case", [case for case in CASES if case.commits], ids=lambda case: case.name)
def test_a_driver_that_wakes_behind_its_successor_adds_nothing(
    case: Case, spark: SparkSession, postgres: str, tmp_path: Path
):
    """Stopped between its rows and its commit; the successor is through when it goes on."""
    url, expected = produced(tmp_path, 20_000, batch=1_000, groups=[case.name])
    place = tmp_path / case.name
    place.mkdir()
    job = {"case": case.name, "group": case.name, "place": case.at(place, postgres), "entries_max": 4_000}
    job |= {"buffer": url}
    zombie = Child([{**job, "stop": "inside"}], conf=SMALL)
    try:
        assert zombie.wait_for(lambda lines: "stopping" in lines)
        drive(spark, case.make(str(job["place"])), job)
        assert held(spark, case, str(job["place"])) == expected
        zombie.signal(signal.SIGCONT)
        assert zombie.wait_for(lambda lines: any(line.startswith(("ended", "failed")) for line in lines))
        assert not any(line.startswith("range") for line in zombie.lines), "it was fenced, and acknowledges nothing"
    finally:
        zombie.kill()
    assert held(spark, case, str(job["place"])) == expected


def test_an_executor_may_be_killed_at_any_time(spark: SparkSession, postgres: str, cluster: Cluster, tmp_path: Path):
    jobs, expected = jobs_for(tmp_path, postgres, entries=ENTRIES // 5)
    child = Child(jobs, conf=ON_CLUSTER, master=cluster.url)
    killed = set[int]()
    try:
        for ranges in (1, 3, 6):
            if not child.wait_for(each_has_moved(jobs[:1], ranges)):
                break
            killed.add(cluster.kill_an_executor())
        child.end(1_800)
    finally:
        child.kill()
    assert len(killed) == 3, child.errors
    all_hold(spark, jobs, expected)


@pytest.mark.parametrize(("transform", "mark"), [("kill", "killed"), ("slow", "speculated")])
def test_tasks_that_are_repeated_or_speculated_write_once(
    spark: SparkSession, postgres: str, cluster: Cluster, tmp_path: Path, transform: str, mark: str
):
    jobs, expected = jobs_for(tmp_path, postgres, entries=20_000, readers=("python",))
    jobs = [{**job, "transform": transform, "entries_max": 10_000} for job in jobs]
    # One by one: a second attempt needs the executor that has nothing else to do.
    Child(jobs, conf=ON_CLUSTER | SPECULATING, master=cluster.url, at_once=1).end(900)
    for job in jobs:
        assert list(tmp_path.glob(f"{mark}-{job['group']}-*")), "nothing was repeated: the test shows nothing"
    all_hold(spark, jobs, expected)
