"""A year of flights into each kind of table, on a cluster of two workers, with five kills: equal to DuckDB's reading.

Drivers are killed with their JVM, and one executor, at moments that a seed chooses. The schema is edited while a run
follows the buffer, before the producers send the second version of their events.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.buffer.blocking import Producer
from tenure.spark.pipeline.notes.history import runs_of
from tests.spark.crash_cluster import Cluster, running_cluster
from tests.spark.flights.data_set import real_flights
from tests.spark.flights.events import write_events
from tests.spark.flights.pipelines import POSTGRES, SCHEMAS, write_pipeline
from tests.spark.flights.producers import producing
from tests.spark.flights.runs import Runs
from tests.spark.flights.tables import read_delta, read_iceberg, read_parquet, read_postgres
from tests.spark.flights.truth import Truth
from tests.spark.pg import running_postgres
from tests.spark.pipeline_case import balances
from tools.sparks import directory_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(7_200)]

SEED = 32
PER_BATCH, PER_RANGE = 2_500, 25_000
ICEBERG_SPARK = "4.1.4"
"""The newest Spark that Iceberg's connector knows."""

Halves = list[list[Path]]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Halves:
    """A file of events for each half of the year and each producer."""
    halves, happened = write_events(real_flights(), tmp_path_factory.mktemp("year"), seed=SEED)
    assert len(happened) == 8, happened
    return halves


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def judged_after_five_kills(home: Path, year: Halves, cluster: Cluster, sink: str) -> Truth:
    """Bring the year into a table, under kills; return what must be in it."""
    url = (home / "buffer").as_uri()
    file = write_pipeline(home, sink, buffer=url, entries_max=PER_RANGE)
    runs = Runs(file, url, seed=SEED, cluster=cluster)
    with Producer(url):  # a pipeline does not make its buffer
        pass
    with producing(url, year[0], per_batch=PER_BATCH):
        runs.kill_the_driver("--follow")
    runs.kill_the_driver("--once")
    runs.kill_an_executor()
    before = runs.epoch()
    with runs.following() as command:
        runs.until(command, lambda: runs.epoch() > before and runs.lag() == 0)
        (home / "flight.toml").write_text(SCHEMAS[1])
        with producing(url, year[1], per_batch=PER_BATCH):
            runs.kill(command)
    runs.kill_the_driver("--once")
    assert runs.run()["state"] == "done"
    assert runs.run()["ranges"] == runs.lag() == 0
    assert runs.kills == 5
    for run in runs_of(url, "flights"):
        balances(run, unchecked=tuple(run.figures.unchecked))  # a run that was killed between two tables lacks counts
    truth = Truth(home, url, [path for half in year for path in half], refuses_nul=sink == "postgres")
    truth.check_buffer()
    truth.check_quarantine()
    print(sink, truth.check_balance())
    return truth


def test_parquet_holds_each_row_that_was_kept_once(year: Halves, cluster: Cluster, tmp_path: Path) -> None:
    truth = judged_after_five_kills(tmp_path, year, cluster, "parquet")
    truth.check_rows(read_parquet(tmp_path))


def test_delta_holds_the_newest_row_of_each_key(year: Halves, cluster: Cluster, tmp_path: Path) -> None:
    truth = judged_after_five_kills(tmp_path, year, cluster, "delta")
    truth.check_newest(read_delta(tmp_path))


def test_postgres_holds_each_row_that_was_kept_once(
    year: Halves, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_postgres() as url:
        monkeypatch.setenv(POSTGRES, url)
        truth = judged_after_five_kills(tmp_path, year, cluster, "postgres")
        truth.check_rows(truth.register("flights", read_postgres(url)))


def test_iceberg_holds_each_row_that_was_kept_once(year: Halves, tmp_path: Path) -> None:
    packages = directory_of(ICEBERG_SPARK)
    with running_cluster(tmp_path, packages=packages) as cluster:
        truth = judged_after_five_kills(tmp_path, year, cluster, "iceberg")
    truth.check_rows(read_iceberg(tmp_path))


def test_small_iceberg_holds_each_row_that_was_kept_once(year: Halves, cluster: Cluster, tmp_path: Path) -> None:
    truth = judged_after_five_kills(tmp_path, year, cluster, "small_iceberg")
    truth.check_rows(read_iceberg(tmp_path))
