"""A pipeline for tests: orders, of which some do not fit and some are not as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.pipeline.runner.runner import RunOptions, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FIRST", "LOCAL", "PIPELINE", "SCHEMA", "SECOND", "balances", "order", "ran", "rows", "set_up", "written"]

SCHEMA = '[fields]\nid = "long"\namount = "decimal(10,2)"\nat = "timestamp"\n'
STEPS = """\
from pyspark.sql import functions as f

def with_cents(frame):
    return frame.withColumn("cents", (f.col("amount") * 100).cast("long"))

def fails(frame):
    raise ValueError("as told\\nand more")

def nothing(frame):
    return None
"""
PIPELINE = """\
[pipeline]
name = "orders"
[source]
buffer = "{buffer}"
group = "orders"
entries_max = 4
[decode]
schema = "orders.toml"
malformed = "quarantine"
[[step]]
sql = '''
WITH dated AS (SELECT *, date(at) AS day FROM input) -- a query may have its own
SELECT * FROM dated;
'''
[[step]]
python = "orders_steps_of_tests:with_cents"
[deduplicate]
keys = ["id"]
[[expect]]
name = "positive"
that = "amount > 0"
otherwise = "quarantine"
[[expect]]
name = "small"
that = "amount < 1000"
otherwise = "drop"
[[expect]]
name = "sane"
that = "id >= 0"
otherwise = "fail"
[expectations]
path = "tables/expectations"
[quarantine]
path = "tables/quarantine"
[sink]
kind = "parquet"
path = "tables/orders"
partition_by = ["day"]
"""
LOCAL = RunOptions(master="local[2]")


def order(number: int, amount: object, day: int = 1) -> bytes:
    return json.dumps({"id": number, "amount": amount, "at": f"2026-01-{day:02}T10:00:00Z"}).encode()


FIRST = [order(1, 5), order(2, 7), order(1, 6, day=2), b"not json"]
SECOND = [order(3, -1), order(4, 5000), order(5, "many"), order(6, 9.25)]


def set_up(home: Path) -> Path:
    """The files that the pipeline names."""
    (home / "orders.toml").write_text(SCHEMA)
    (home / "orders_steps_of_tests.py").write_text(STEPS)
    return home


def written(home: Path, url: str, text: str = PIPELINE) -> Path:
    file = home / "pipeline.toml"
    file.write_text(text.replace("{buffer}", url))
    return file


def ran(spark: SparkSession, file: Path, *, unchecked: tuple[str, ...] = (), **options: Any) -> Run:
    run = run_pipeline(read_pipeline(file), LOCAL, spark=spark, **options)
    balances(run, unchecked=unchecked)
    return run


def balances(run: Run, *, unchecked: tuple[str, ...] = ()) -> None:
    """Assert that a run's figures account for every entry, except for terms that need not be checked."""
    found = run.figures
    assert set(found.unchecked) <= set(unchecked)
    if found.entries is None or found.rows is None:
        return
    count = found.entries
    for name, change in found.stages.items():
        assert change.rows_in == count, name
        if change.rows_out is None:
            return
        count = change.rows_out
    assert count == found.rows
    terms = list(found.balance.values())
    assert None in terms or sum(term or 0 for term in terms) == found.entries
    steps = [change for name, change in found.stages.items() if name.startswith("step")]
    added = sum((change.rows_out or 0) - (change.rows_in or 0) for change in steps)
    left_out = [found.quarantined, found.dropped, found.duplicates]
    if "merge" not in found.stages and None not in left_out:
        assert found.entries + added == found.rows + sum(count or 0 for count in left_out)


def rows(spark: SparkSession, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).selectExpr(*columns).collect())
