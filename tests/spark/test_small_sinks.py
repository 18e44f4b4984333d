"""Tables without connectors take every range once too, and refuse what is too large for a driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Invalid
from tenure.spark.jobs.backfill import backfill
from tenure.spark.jobs.ingest import ingest
from tenure.spark.sinks.delta.small import SmallDelta
from tenure.spark.sinks.iceberg.small import SmallIceberg
from tenure.spark.sinks.to_driver import to_driver
from tests.spark.conftest import Filled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

Small = SmallDelta | SmallIceberg


def delta(folder: Path, **settings: Any) -> SmallDelta:
    return SmallDelta(folder / "a table", name="small", **settings)


def iceberg(folder: Path, **settings: Any) -> SmallIceberg:
    return SmallIceberg("db.table", warehouse=folder / "a warehouse", name="small", **settings)


def read_delta(folder: Path) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(folder / "a table").to_pyarrow_table()


def read_iceberg(folder: Path) -> pa.Table:
    table = iceberg(folder)._load()
    assert table is not None
    return table.scan().to_arrow()


BOTH = pytest.mark.parametrize(
    ("make", "read"), [(delta, read_delta), (iceberg, read_iceberg)], ids=["delta-rs", "pyiceberg"]
)
Make = Callable[..., Small]
Read = Callable[[Path], pa.Table]


def commit(low: int, high: int) -> Commit:
    return Commit("B", "small", low, high, 1)


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    """Ten rows for each number, with the types that tables are particular about."""
    columns = ["id", "id % 2 AS part", "timestamp'2026-11-15 12:00:00' AS at", "map('a', id) AS counts"]
    columns += ["named_struct('at', timestamp'2026-11-15 12:00:00', 'names', array('x', NULL)) AS more"]
    return spark.range(low * 10, (high + 1) * 10, 1, 2).selectExpr(*columns)


@BOTH
def test_a_range_is_stored_once_with_its_types(spark: SparkSession, tmp_path: Path, make: Make, read: Read):
    table = pickle.loads(pickle.dumps(make(tmp_path, partition_by=["part"])))
    assert table.needs((4, 3)).packages == ()
    assert table.last_committed(spark, "B") is None
    assert table.write(rows(spark, 0, 1), commit(0, 1)) == 20
    assert table.write(rows(spark, 0, 1), commit(0, 1)) is None
    assert table.write(rows(spark, 0, 1).where("false"), commit(2, 4)) == 0
    assert table.write(rows(spark, 2, 2).selectExpr("*", "'x' AS joined"), commit(5, 5)) == 10
    assert table.last_committed(spark, "B") == 5
    assert table.last_committed(spark, "another") is None
    with pytest.raises(Conflict):
        table.write(rows(spark, 9, 9), commit(9, 9))
    found = sorted(read(tmp_path).to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(30))
    assert {row["joined"] for row in found} == {None, "x"}
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert (found[7]["at"], found[7]["more"]) == (noon, {"at": noon, "names": ["x", None]})


@BOTH
def test_a_range_that_is_too_large_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, make: Make, read: Read
):
    for bound in ({"rows_max": 19}, {"bytes_max": 500}):
        with pytest.raises(Invalid) as refused:
            make(tmp_path, **bound).write(rows(spark, 0, 1), commit(0, 1))
        assert refused.value.code == "too_large_for_driver"
    assert make(tmp_path).last_committed(spark, "B") is None
    make(tmp_path, rows_max=20).write(rows(spark, 0, 1), commit(0, 1))
    assert read(tmp_path).num_rows == 20


@BOTH
@pytest.mark.full
def test_a_range_that_is_too_large_goes_in_by_halves_also_where_its_end_is_decided(
    spark: SparkSession, tmp_path: Path, filled: Filled, make: Make, read: Read
):
    url = filled(*([b"%d" % (10 * number + each) for each in range(10)] for number in range(5)))
    with pytest.raises(Invalid) as refused:  # a single batch: nothing is smaller
        ingest(spark, url, make(tmp_path, rows_max=9))
    assert refused.value.code == "too_large_for_driver"
    assert "raise rows_max" in refused.value.message
    summary = ingest(spark, url, make(tmp_path, rows_max=25))
    assert (summary.entries, summary.high, summary.ranges > 1) == (50, 4, True)
    assert sorted(int(entry) for entry in read(tmp_path)["entry"].to_pylist()) == list(range(50))
    kept = filled(*([b"%d" % (10 * number + each) for each in range(10)] for number in range(5)))
    copy = make(tmp_path / "copy", rows_max=25)
    assert backfill(spark, kept, copy, 0, 4).entries == 50
    assert sorted(int(entry) for entry in read(tmp_path / "copy")["entry"].to_pylist()) == list(range(50))


@BOTH
def test_a_driver_that_lost_the_race_stores_nothing(
    spark: SparkSession, tmp_path: Path, make: Make, read: Read, monkeypatch: pytest.MonkeyPatch
):
    """The winner commits the same range while the loser, which has asked for the marker, collects its rows."""
    make(tmp_path).write(rows(spark, 0, 0), commit(0, 0))
    module = f"tenure.spark.sinks.{'delta' if make is delta else 'iceberg'}.small"

    def overtaken(frame: DataFrame, **bounds: int) -> pa.Table:
        monkeypatch.undo()
        make(tmp_path).write(rows(spark, 1, 1), commit(1, 1))
        return to_driver(frame, **bounds)

    monkeypatch.setattr(f"{module}.to_driver", overtaken)
    make(tmp_path).write(rows(spark, 1, 1), commit(1, 1))
    assert sorted(read(tmp_path)["id"].to_pylist()) == list(range(20))


@BOTH
def test_rows_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path, make: Make, read: Read):
    make(tmp_path).write(rows(spark, 0, 0), commit(0, 0))
    for wrong in (rows(spark, 1, 1).selectExpr("'text' AS id"), rows(spark, 1, 1).selectExpr("*", "1 AS extra")):
        with pytest.raises(Invalid) as refused:
            make(tmp_path, evolve=False).write(wrong, commit(1, 1))
        assert refused.value.code == "sink_rejected"
    assert read(tmp_path).num_rows == 10
    assert make(tmp_path).last_committed(spark, "B") == 0


def test_an_iceberg_table_that_was_rolled_back_does_not_hold_what_it_held(spark: SparkSession, tmp_path: Path):
    sink = iceberg(tmp_path)
    sink.write(rows(spark, 0, 0), commit(0, 0))
    first = sink._load()
    assert first is not None
    head = first.current_snapshot()
    assert head is not None
    sink.write(rows(spark, 1, 1), commit(1, 1))
    sink.write(rows(spark, 1, 1).where("false"), commit(2, 4))
    assert sink.last_committed(spark, "small-and-unknown") is None
    assert sink.last_committed(spark, "B") == 4
    first.refresh().manage_snapshots().rollback_to_snapshot(head.snapshot_id).commit()
    assert sink.last_committed(spark, "B") == 0
    sink.write(rows(spark, 1, 1), commit(1, 1))
    assert sorted(read_iceberg(tmp_path)["id"].to_pylist()) == list(range(20))


def test_a_small_iceberg_table_needs_one_catalog():
    for arguments in ({}, {"catalog": {"type": "rest"}, "warehouse": "x"}):
        with pytest.raises(Invalid):
            SmallIceberg("db.table", **arguments)  # type: ignore[arg-type]
    with pytest.raises(Invalid):
        SmallIceberg("table", warehouse="x")
