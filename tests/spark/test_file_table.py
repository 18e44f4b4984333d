"""A directory of Parquet files takes every range once, and plain readers of Spark see just that."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Corrupt, Invalid
from tenure.objects.background import BackgroundLoop, background
from tenure.spark.jobs.compact_table import CompactedTable, compact_table
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.table import FileTable, files
from tenure.spark.sinks.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)


class Died(BaseException):
    """The driver is gone: nothing after it runs."""


def commit(low: int, high: int, *, buffer: str = "B") -> Commit:
    return Commit(buffer, "files", low, high, 1)


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    """Ten rows for each number, two days."""
    return spark.range(low * 10, (high + 1) * 10, 1, 2).selectExpr("id", "concat('d ', id % 2, ':') AS day")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_spark_reads_each_committed_row_once_over_compactions(spark: SparkSession, tmp_path: Path):
    table = pickle.loads(pickle.dumps(FileTable(tmp_path / "a table", partition_by=["day"], rows_per_file_max=3)))
    assert table.last_committed(spark, "B") is None
    at = tmp_path / "a table"
    written = list[int]()
    for number in range(12):
        if number in {1, 8, 9, 11}:
            assert table.write(rows(spark, number, number), commit(number, number)) == 10
            written += range(number * 10, number * 10 + 10)
            assert ids(spark.read.parquet(str(at))) == written
        else:  # as an empty range, without Spark
            log = FileLog(Place(at).store(), Place(at).spark_url)
            background().run(table._commit(log, commit(number, number), "empty", []))
    assert table.write(rows(spark, 9, 9), commit(9, 9)) is None  # a repeat adds nothing
    assert table.write(rows(spark, 0, 0).where("false"), commit(12, 14)) == 0
    assert table.last_committed(spark, "B") == 14
    frame = spark.read.parquet(str(at))
    assert ids(frame) == written
    assert ids(frame.where("day = 'd 1:'")) == written[1::2]
    with pytest.raises(Conflict):
        table.write(rows(spark, 20, 20), commit(20, 20))
    assert not list((at / "_staging").rglob("*.parquet"))
    counts = [pq.read_metadata(path).num_rows for path in files(at)]
    assert (sum(counts), max(counts)) == (40, 3)
    assert {pq.read_metadata(path).row_group(0).column(0).compression for path in files(at)} == {"ZSTD"}
    with pytest.raises(Invalid, match="compression is one of zstd"):
        FileTable(at, compression="zip")


def test_partitions_whose_columns_begin_with_an_underscore_keep_their_rows(spark: SparkSession, tmp_path: Path):
    table = FileTable(tmp_path, partition_by=["_day", "_x"])
    for number in range(3):
        frame = rows(spark, number, number).selectExpr("id", "day AS _day", "id % 2 AS _x")
        assert table.write(frame, commit(number, number)) == 10
    at, data = str(tmp_path), [*tmp_path.rglob("*.parquet")]
    assert ids(spark.read.parquet(at)) == list(range(30))
    assert ids(spark.read.parquet(at).where("_day = 'd 1:'")) == list(range(1, 30, 2))
    assert {*map(str, data)} == set(files(at))
    assert compact_table(spark, at, files_min=2, keep_ms=0) == CompactedTable(len(data), 2)
    assert ids(spark.read.parquet(at).where("_x = 0")) == list(range(0, 30, 2))
    assert {*map(str, tmp_path.rglob("*.parquet"))} == set(files(at))
    with pytest.raises(Invalid, match="hidden from Spark"):
        FileTable(at, partition_by=[".day"])


def test_a_partition_takes_a_text_with_a_nul_and_refuses_one_too_long_for_a_name(spark: SparkSession, tmp_path: Path):
    table = FileTable(tmp_path, partition_by=["a.b", "part"])

    def partitioned(*texts: str) -> DataFrame:
        return spark.createDataFrame([(number, "1", text) for number, text in enumerate(texts)], ["id", "a.b", "part"])

    longest = "é" * 35 + "/" * 60  # 70 bytes, and 180 once they are escaped
    assert table.write(partitioned("a\0b", "\0", longest), commit(0, 0)) == 3
    found = spark.read.parquet(str(tmp_path)).orderBy("id").collect()
    assert [row.part for row in found] == ["a\ufffdb", "\ufffd", longest]
    with pytest.raises(Exception, match=r"by part, and a directory's name has at most 255 bytes: shorten é{35}/{5}…"):
        table.write(partitioned("short", longest + "/"), commit(1, 1))
    assert table.last_committed(spark, "B") == 0


def test_rows_that_are_lost_on_the_way_fail_the_range(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table, seen = FileTable(tmp_path), list[str]()

    def forgets_one(path: str) -> bool:
        seen.append(path)
        return path.endswith(".parquet") and "/" not in path and "part-00001" not in path

    with monkeypatch.context() as patched:
        patched.setattr("tenure.spark.sinks.files.stage._is_data", forgets_one)
        with pytest.raises(Corrupt, match=r"10 rows of .* were written, and the files .* hold 5") as caught:
            table.write(rows(spark, 0, 0), commit(0, 0))
    assert caught.value.code == "table_rows_differ"
    assert (files(tmp_path), table.last_committed(spark, "B"), len(seen) > 1) == ([], None, True)
    assert table.write(rows(spark, 0, 0), commit(0, 0)) == 10


def test_what_was_not_committed_is_not_read(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = FileTable(tmp_path)
    table.write(rows(spark, 0, 0), commit(0, 0))

    async def die(*_: Any, **__: Any) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(FileLog, "append", die)
        with pytest.raises(Died):
            table.write(rows(spark, 1, 1), commit(1, 1))
    assert len(list(tmp_path.glob("1-1-*.parquet"))) > 0
    assert ids(spark.read.parquet(str(tmp_path))) == list(range(10))
    table.write(rows(spark, 1, 1), commit(1, 1))
    assert ids(spark.read.parquet(str(tmp_path))) == list(range(20))
    assert {str(path) for path in tmp_path.glob("*.parquet")} == set(files(tmp_path))


def test_a_table_whose_path_goes_up_is_read_by_its_real_path(spark: SparkSession, tmp_path: Path):
    (tmp_path / "jobs").mkdir()
    FileTable(tmp_path / "jobs/../t", partition_by=["day"]).write(rows(spark, 0, 0), commit(0, 0))
    assert ids(spark.read.parquet(str(tmp_path / "t")).where("day = 'd 1:'")) == [1, 3, 5, 7, 9]
    assert all(Path(path).parents[1] == tmp_path / "t" for path in files(tmp_path / "t"))
    assert FileTable(tmp_path / "t", partition_by=["day"]).last_committed(spark, "B") == 0


def test_spark_compacts_a_table_that_plain_readers_follow(spark: SparkSession, tmp_path: Path):
    table = FileTable(tmp_path, partition_by=["day"])
    for number in range(3):
        frame = rows(spark, number, number).withColumn("at", f.timestamp_seconds("id"))
        frame = frame.selectExpr("*", "id AS joined") if number == 2 else frame
        table.write(frame, commit(number, number))
    before = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id").collect()
    assert compact_table(spark, tmp_path, files_min=2, keep_ms=0) == CompactedTable(12, 2)
    assert len(files(tmp_path)) == len(list(tmp_path.rglob("*.parquet"))) == 2
    after = spark.read.option("mergeSchema", "true").parquet(str(tmp_path)).orderBy("id")
    assert after.collect() == before
    assert ids(after.where("day = 'd 1:'")) == list(range(1, 30, 2))
    assert table.last_committed(spark, "B") == 2
    table.write(rows(spark, 3, 3), commit(3, 3))
    assert ids(spark.read.parquet(str(tmp_path))) == list(range(40))


def test_a_column_may_join_and_what_cannot_be_stored_is_refused_first(spark: SparkSession, tmp_path: Path):
    table = FileTable(tmp_path)
    table.write(rows(spark, 0, 0), commit(0, 0))
    # Never null, as far as Spark knows: read as such, the older rows would have a 0.
    table.write(rows(spark, 1, 1).selectExpr("*", "id * 2 AS twice", "named_struct('x', 1) AS `in.side`"), commit(1, 1))
    merged = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
    assert merged.where("twice IS NOT NULL AND `in.side`.x IS NOT NULL").count() == 10
    assert merged.where("twice IS NULL AND `in.side` IS NULL").count() == 10
    assert merged.count() == 20
    with pytest.raises(Invalid) as caught:
        table.write(spark.sql("SELECT INTERVAL '1' DAY AS a, 1 AS a"), commit(2, 2))
    assert caught.value.code == "sink_rejected"
    with pytest.raises(Invalid, match="partitioned by"):
        FileTable(tmp_path, partition_by=["hour"]).write(rows(spark, 2, 2), commit(2, 2))
    assert table.last_committed(spark, "B") == 1


@pytest.mark.parametrize("version", ["this", "an older"])
def test_a_range_with_another_type_is_refused_before_it_is_written(spark: SparkSession, tmp_path: Path, version: str):
    table = FileTable(tmp_path, partition_by=["day"])
    table.write(rows(spark, 0, 0).selectExpr("*", "named_struct('x', 1) AS s"), commit(0, 0))
    if version == "an older":  # which kept no schema in its log
        log = tmp_path / "_spark_metadata/0"
        first, mark, *others = log.read_text().splitlines()
        assert json.loads(mark).pop("schema")
        mark = json.dumps({name: value for name, value in json.loads(mark).items() if name != "schema"})
        log.write_text("\n".join([first, mark, *others]))
    before = set(tmp_path.rglob("*"))
    wrong = rows(spark, 1, 1).selectExpr("CAST(id AS string) AS id", "day", "named_struct('x', 1L) AS s")
    with pytest.raises(
        Invalid, match=r"id is long in the table and string in the rows; s\.x is integer in the table and long"
    ) as caught:
        table.write(wrong, commit(1, 1))
    assert caught.value.code == "sink_rejected"
    with pytest.raises(Invalid, match="partitioned by day, and not by nothing"):
        FileTable(tmp_path).write(rows(spark, 1, 1), commit(1, 1))
    assert set(tmp_path.rglob("*")) == before
    assert table.write(rows(spark, 1, 1).selectExpr("*", "named_struct('y', 'a') AS s", "1 AS n"), commit(1, 1)) == 10
    at = str(tmp_path)
    assert spark.read.option("mergeSchema", "true").parquet(at).where("s.x = 1 OR s.y = 'a' AND n = 1").count() == 20
    assert compact_table(spark, at, files_min=2, keep_ms=0).files_after == 2
    with pytest.raises(Invalid, match="n is integer in the table and date in the rows"):
        table.write(rows(spark, 2, 2).selectExpr("*", "DATE'2026-11-19' AS n"), commit(2, 2))


def test_a_driver_that_was_given_up_loses_its_files_and_adds_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its successor commits the same range while the first is between its files and its commit."""
    stale, fresh = FileTable(tmp_path), FileTable(tmp_path)
    append, overtaken = FileLog.append, list[int]()

    async def slow(self: FileLog, *args: Any, **more: Any) -> bool:
        if not overtaken:
            overtaken.append(1)
            # The other driver has a loop of its own: this one belongs to the first, and waits.
            monkeypatch.setattr("tenure.spark.sinks.files.table.background", BackgroundLoop)
            await asyncio.to_thread(fresh.write, rows(spark, 0, 0), commit(0, 0))
        return await append(self, *args, **more)

    monkeypatch.setattr(FileLog, "append", slow)
    stale.write(rows(spark, 0, 0), commit(0, 0))
    assert ids(spark.read.parquet(str(tmp_path))) == list(range(10))
    assert {str(path) for path in tmp_path.glob("*.parquet")} == set(files(tmp_path))


OTHER = """
import sys
from pyspark.sql import SparkSession
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
frame = spark.read.parquet(sys.argv[1])
print(spark.version, frame.count(), frame.where("day = 'd 1:'").count())
"""


@pytest.mark.full
@pytest.mark.skipif("TENURE_OTHER_PYSPARK" not in os.environ, reason="names the directory of another pyspark")
def test_another_version_of_spark_reads_the_table(spark: SparkSession, tmp_path: Path):
    table = FileTable(tmp_path / "t", partition_by=["day"])
    for number in range(11):  # more than a compaction
        table.write(rows(spark, number, number), commit(number, number))
    environment = {**os.environ, "PYTHONPATH": os.environ["TENURE_OTHER_PYSPARK"]}
    environment.pop("SPARK_HOME", None)
    out = subprocess.run(
        [sys.executable, "-c", OTHER, str(tmp_path / "t")], env=environment, capture_output=True, timeout=200, text=True
    )
    version, *counts = out.stdout.split()
    assert version != spark.version
    assert counts == ["110", "55"]
