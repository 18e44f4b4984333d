"""Delta's own connector takes every range once, appended or merged by key."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Invalid, Overloaded, TenureError
from tenure.spark.session.session import spark_version
from tenure.spark.sinks.delta.sink import DeltaSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

try:
    DeltaSink("unused").needs(spark_version())
except Invalid as none_for_this_spark:
    pytest.skip(none_for_this_spark.message, allow_module_level=True)
CONF = {
    "spark.sql.ansi.enabled": "true",  # which it is not by itself before Spark 4
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.properties.defaults.checkpointInterval": "3",
}
TXN = "spark.databricks.delta.write.txnVersion"


def commit(low: int, high: int, *, buffer: str = "B") -> Commit:
    return Commit(buffer, "delta", low, high, 1)


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    """Ten rows for each number."""
    return spark.range(low * 10, (high + 1) * 10, 1, 1).selectExpr("id", "id % 2 AS part")


def read(spark: SparkSession, place: Path) -> DataFrame:
    return spark.read.format("delta").load(str(place))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def changes(spark: SparkSession, *lines: tuple[int, int, str, str]) -> DataFrame:
    return spark.createDataFrame(list(lines), "_seq long, _index int, user string, op string").coalesce(1)


def users(frame: DataFrame) -> dict[str, tuple[int, int]]:
    return {row.user: (row._seq, row._index) for row in frame.collect()}


@pytest.mark.full
def test_a_range_is_appended_once_and_the_marker_outlives_the_clean_up_of_the_log(spark: SparkSession, tmp_path: Path):
    place = tmp_path / "a table"
    table = pickle.loads(pickle.dumps(DeltaSink(place, partition_by=["part"])))
    assert table.last_committed(spark, "B") is None
    for number in range(4):
        assert table.write(rows(spark, number, number), commit(number, number)) == 10
    assert table.write(rows(spark, 0, 0), commit(0, 0)) is None  # a repeat adds nothing
    # A range of which nothing is left moves the marker.
    assert table.write(rows(spark, 0, 0).where("false"), commit(4, 6)) == 0
    assert table.last_committed(spark, "B") == 6
    assert table.last_committed(spark, "another") is None
    assert ids(read(spark, place)) == list(range(40))
    with pytest.raises(Conflict):
        table.write(rows(spark, 9, 9), commit(9, 9))
    log = place / "_delta_log"
    assert (log / f"{3:020}.checkpoint.parquet").exists()
    for version in range(4):
        (log / f"{version:020}.json").unlink()  # as Delta does it, 30 days later
    assert table.last_committed(spark, "B") == 6


@pytest.mark.full
def test_delta_itself_skips_a_range_that_came_in_between(spark: SparkSession, tmp_path: Path):
    """A driver that was given up has asked for the marker before its successor commits the same range."""

    class Late(DeltaSink):
        def _last(self, spark: SparkSession, buffer: str, sink: str) -> int | None:
            return None

    place = tmp_path / "late"
    DeltaSink(place).write(rows(spark, 0, 1), commit(0, 1))
    Late(place).write(rows(spark, 0, 1), commit(0, 1))
    assert ids(read(spark, place)) == list(range(20))


@pytest.mark.full
def test_drivers_that_write_the_same_range_at_once_store_it_once(spark: SparkSession, tmp_path: Path):
    place = tmp_path / "race"
    DeltaSink(place).write(rows(spark, 0, 0), commit(0, 0))
    outcomes: list[str] = []

    def write() -> None:
        try:
            DeltaSink(place).write(rows(spark, 1, 2), commit(1, 2))
            outcomes.append("held")
        except Overloaded as error:
            outcomes.append(error.code)
        except TenureError as error:
            outcomes.append(f"{type(error).__name__}: {error}")

    drivers = [threading.Thread(target=write) for _ in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert "held" in outcomes
    assert set(outcomes) <= {"held", "table_busy"}
    assert ids(read(spark, place)) == list(range(30))


@pytest.mark.full
def test_the_newest_row_of_a_key_wins_and_a_replay_brings_no_deleted_key_back(spark: SparkSession, tmp_path: Path):
    place = tmp_path / "users"
    table = DeltaSink(place, merge_keys=["user"], delete_when="op = 'delete'")
    first = changes(spark, (0, 0, "ann", "put"), (0, 1, "bob", "put"), (1, 0, "ann", "put"), (1, 1, "cid", "put"))
    assert table.write(first, commit(0, 1)) == 3
    assert users(read(spark, place)) == {"ann": (1, 0), "bob": (0, 1), "cid": (1, 1)}
    second = changes(
        spark, (2, 0, "bob", "put"), (2, 1, "bob", "delete"), (2, 2, "dan", "delete"), (2, 3, "cid", "put")
    )
    assert table.write(second, commit(2, 2)) == 3
    after = {"ann": (1, 0), "cid": (2, 3)}
    assert users(read(spark, place)) == after
    table.write(first, commit(0, 1))
    table.write(second, commit(2, 2))
    assert users(read(spark, place)) == after
    table.write(second.where("false"), commit(3, 5))
    assert table.last_committed(spark, "B") == 5
    assert spark.conf.get(TXN, None) is None
    # The same rows from another buffer: older ones do not replace newer ones.
    table.write(changes(spark, (1, 0, "cid", "delete"), (0, 0, "ann", "put")), commit(0, 1, buffer="C"))
    assert users(read(spark, place)) == after


def test_a_malformed_entry_is_replaced_by_no_other_and_by_no_row_without_a_key(spark: SparkSession, tmp_path: Path):
    table = DeltaSink(tmp_path / "users", merge_keys=["user"], delete_when="op IS NULL")

    def entries(*lines: tuple[int, int, str | None, str | None, str | None]) -> DataFrame:
        columns = "_seq long, _index int, user string, op string, _malformed string"
        return spark.createDataFrame(list(lines), columns).coalesce(1)

    def found() -> list[tuple[int, int, str | None, str | None]]:
        rows = read(spark, tmp_path / "users").select("_seq", "_index", "user", "_malformed").collect()
        return sorted(tuple(row) for row in rows)

    first = entries(
        (0, 0, None, None, "a"), (0, 1, None, None, "b"), (0, 2, None, "put", None), (0, 3, "x", "put", None)
    )
    assert table.write(first, commit(0, 0)) == 4
    before = [(0, 0, None, "a"), (0, 1, None, "b"), (0, 2, None, None), (0, 3, "x", None)]
    assert found() == before
    table.write(entries((1, 0, None, None, "c"), (1, 1, None, "put", None)), commit(1, 1))
    assert found() == [*before[:2], before[3], (1, 0, None, "c"), (1, 1, None, None)]
    table.write(entries((2, 0, None, "put", None)).drop("_malformed"), commit(2, 2))
    table.write(first, commit(0, 0, buffer="C"))  # the same entries under another name
    assert found() == [*before[:2], before[3], (1, 0, None, "c"), (2, 0, None, None)]


def test_a_partition_takes_a_text_with_a_nul_and_refuses_one_too_long_for_a_name(spark: SparkSession, tmp_path: Path):
    table = DeltaSink(tmp_path / "parted", partition_by=["part"])
    table.write(spark.sql("SELECT 1 AS id, 'a\\u0000b' AS part"), commit(0, 0))
    assert [row.part for row in read(spark, tmp_path / "parted").collect()] == ["a\ufffdb"]
    with pytest.raises(Invalid, match="partitioned by part, and a directory's name has at most 255 bytes"):
        table.write(spark.sql("SELECT 2 AS id, repeat('x', 300) AS part"), commit(1, 1))


@pytest.mark.full
def test_a_merge_of_a_late_driver_is_skipped_with_its_deletes_and_inserts(spark: SparkSession, tmp_path: Path):
    class Late(DeltaSink):
        def _last(self, spark: SparkSession, buffer: str, sink: str) -> int | None:
            return None

    place = tmp_path / "late users"
    put, delete = changes(spark, (0, 0, "ann", "put")), changes(spark, (1, 0, "ann", "delete"))
    DeltaSink(place, merge_keys=["user"], delete_when="op = 'delete'").write(put, commit(0, 0))
    DeltaSink(place, merge_keys=["user"], delete_when="op = 'delete'").write(delete, commit(1, 1))
    Late(place, merge_keys=["user"], delete_when="op = 'delete'").write(put, commit(0, 0))
    assert users(read(spark, place)) == {}


@pytest.mark.full
def test_columns_join_a_table_unless_that_is_switched_off(spark: SparkSession, tmp_path: Path):
    place = tmp_path / "columns"
    merging = DeltaSink(place, merge_keys=["user"])
    merging.write(changes(spark, (0, 0, "ann", "put")), commit(0, 0))
    wider = changes(spark, (1, 0, "ann", "put")).selectExpr("*", "'x' AS more")
    with pytest.raises(Invalid) as refused:
        DeltaSink(place, merge_keys=["user"], evolve=False).write(wider, commit(1, 1))
    assert refused.value.code == "sink_rejected"
    merging.write(wider, commit(1, 1))
    with pytest.raises(Invalid) as refused:
        DeltaSink(place, evolve=False).write(wider.selectExpr("*", "1 AS most"), commit(2, 2))
    assert refused.value.code == "sink_rejected"
    DeltaSink(place).write(wider.selectExpr("*", "1 AS most"), commit(2, 2))
    found = [row.asDict() for row in read(spark, place).orderBy("most").collect()]
    assert [(row["user"], row["more"], row["most"]) for row in found] == [("ann", "x", None), ("ann", "x", 1)]
    with pytest.raises(Invalid) as refused:
        merging.write(rows(spark, 3, 3), commit(3, 3))  # no key
    assert refused.value.code == "sink_rejected"


@pytest.mark.full
def test_a_merge_takes_rows_with_fewer_and_with_more_nested_fields(spark: SparkSession, tmp_path: Path):
    sink, place = DeltaSink(tmp_path / "nested", merge_keys=["user"]), "L AS _seq, 0 AS _index, 'ann' AS user"

    def merged(number: int, columns: str) -> dict[str, object]:
        frame = spark.sql(f"SELECT {number}{place}, {columns}")
        sink.write(frame, commit(number, number))
        (row,) = read(spark, tmp_path / "nested").drop("_seq", "_index", "user").collect()
        return row.asDict(recursive=True)

    whole = "named_struct('a', 1, 'b', named_struct('c', 2)) AS s, array(named_struct('x', 1, 'y', 2)) AS l"
    merged(0, f"{whole}, map('k', named_struct('x', 1, 'y', 2)) AS m")
    less = "named_struct('B', named_struct('c', 3)) AS s, array(named_struct('y', 4), NULL) AS l"
    assert merged(1, f"{less}, map('k', named_struct('y', 5)) AS m") == {
        "s": {"a": None, "b": {"c": 3}},
        "l": [{"x": None, "y": 4}, None],
        "m": {"k": {"x": None, "y": 5}},
    }
    both = merged(2, "named_struct('a', 6, 'more', 'z') AS s")  # a field joins where another is absent
    assert both["s"] == {"a": 6, "b": None, "more": "z"}
    narrow = DeltaSink(tmp_path / "nested", merge_keys=["user"], evolve=False)
    with pytest.raises(Invalid, match=r"the table has no s\.most"):
        narrow.write(spark.sql(f"SELECT 3{place}, named_struct('most', 1) AS s"), commit(3, 3))
    assert merged(3, "CAST(NULL AS STRUCT<a: INT>) AS s")["s"] is None


@pytest.mark.parametrize("merge_keys", [(), pytest.param(("id",), marks=pytest.mark.full)])
def test_a_value_that_fails_in_a_task_is_refused_for_good(
    spark: SparkSession, tmp_path: Path, merge_keys: tuple[str, ...]
):
    """Else a job that follows would try it for ever."""
    bad = spark.range(3).selectExpr("id", "id AS _seq", "id AS _index", "CAST(concat('x', id) AS INT) AS number")
    with pytest.raises(Invalid, match="CAST_INVALID_INPUT") as refused:
        DeltaSink(tmp_path / "values", merge_keys=merge_keys).write(bad, commit(0, 0))
    assert refused.value.code == "sink_rejected"


@pytest.mark.full
def test_a_table_may_be_told_by_its_name(spark: SparkSession, tmp_path: Path):
    spark.sql(f"CREATE DATABASE IF NOT EXISTS tenure_named LOCATION '{tmp_path / 'named'}'")
    try:
        table = DeltaSink("tenure_named.users", merge_keys=["user"])
        assert table.last_committed(spark, "B") is None
        table.write(changes(spark, (0, 0, "ann", "put")), commit(0, 0))
        appending = DeltaSink("tenure_named.users")
        assert appending.last_committed(spark, "B") == 0
        appending.write(changes(spark, (1, 0, "bob", "put")), commit(1, 1))
        appending.write(changes(spark, (1, 0, "bob", "put")), commit(1, 1))
        assert table.last_committed(spark, "B") == 1
        assert users(spark.table("tenure_named.users")) == {"ann": (0, 0), "bob": (1, 0)}
        newest = max((tmp_path / "named" / "users" / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for line in newest.read_text().splitlines()]
        assert [action["txn"]["version"] for action in actions if "txn" in action] == [1]
    finally:
        spark.sql("DROP DATABASE tenure_named CASCADE")
