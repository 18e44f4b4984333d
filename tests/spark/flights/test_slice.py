"""Made-up flights through a pipeline that is killed once: every entry is where DuckDB says that it must be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tenure.spark.sinks.files.table import files
from tests.spark.flights.data_set import made_up_flights
from tests.spark.flights.events import write_events
from tests.spark.flights.pipelines import SCHEMAS, write_pipeline
from tests.spark.flights.producers import produced
from tests.spark.flights.runs import Runs
from tests.spark.flights.truth import Truth
from tests.spark.pipeline_case import ran

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 32


def test_every_entry_is_accounted_for_after_a_kill_and_a_change_of_the_schema(
    spark: SparkSession, tmp_path: Path
) -> None:
    halves, _ = write_events(made_up_flights(4_000, seed=SEED), tmp_path, seed=SEED, often=10)
    url = (tmp_path / "buffer").as_uri()
    file = write_pipeline(tmp_path, "parquet", buffer=url, entries_max=1_000)
    produced(url, halves[0], per_batch=100)
    Runs(file, url, seed=SEED, longest_s=0.5).kill_the_driver("--once")
    assert ran(spark, file).state == "done"
    (tmp_path / "flight.toml").write_text(SCHEMAS[1])
    produced(url, halves[1], per_batch=100)
    assert ran(spark, file).state == "done"
    truth = Truth(tmp_path, url, [path for half in halves for path in half])
    truth.check_buffer()
    truth.check_balance()
    truth.check_quarantine()
    truth.check_rows(f"read_parquet({files(tmp_path / 'tables/flights')}, union_by_name = true)")
