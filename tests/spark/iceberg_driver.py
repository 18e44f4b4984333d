"""Checks of the Iceberg sink with Iceberg's own connector: one process, one session, on a Spark that it has one for.

PYTHONPATH=<pyspark> python tests/spark/iceberg_driver.py DIRECTORY CHECK…    prints what became of each, as JSON
"""

from __future__ import annotations

import json
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict, Invalid, Overloaded, TenureError
from tenure.spark.session.session import open_session, spark_version
from tenure.spark.sinks.iceberg.marker import Snapshot, property_of
from tenure.spark.sinks.iceberg.sink import IcebergSink
from tests.spark.crash_kill import SMALL, kill_once
from tests.spark.crash_sinks import CASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUT, DELETE = "put", "delete"


def commit(low: int, high: int, *, buffer: str = "B") -> Commit:
    return Commit(buffer, "iceberg", low, high, 1)


def rows(spark: SparkSession, low: int, high: int) -> DataFrame:
    """Ten rows for each number."""
    return spark.range(low * 10, (high + 1) * 10, 1, 1).selectExpr("id", "id % 2 AS part")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def changes(spark: SparkSession, *lines: tuple[int, int, str, str]) -> DataFrame:
    return spark.createDataFrame(list(lines), "_seq long, _index int, user string, op string").coalesce(1)


def users(spark: SparkSession, table: str) -> dict[str, tuple[int, int]]:
    return {row.user: (row._seq, row._index) for row in spark.table(table).collect()}


def refused(kind: type[TenureError], code: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.code == code, str(caught.value)


class Late(IcebergSink):
    """A driver that was given up: it has asked for the marker before its successor commits the same range."""

    asked = False

    def _last(self, spark: SparkSession, buffer: str, sink: str) -> int | None:
        if not self.asked:
            self.asked = True
            return None
        return super()._last(spark, buffer, sink)


def a_range_is_appended_once_also_between_commits_of_other_writers(spark: SparkSession) -> None:
    table: IcebergSink = pickle.loads(pickle.dumps(IcebergSink("ice.db.appended", partition_by=["part"])))
    assert table.last_committed(spark, "B") is None
    table.write(rows(spark, 0, 0), commit(0, 0))
    rows(spark, 100, 100).writeTo("ice.db.appended").append()
    assert table.write(rows(spark, 1, 2), commit(1, 2)) == 20
    assert table.write(rows(spark, 1, 2), commit(1, 2)) is None
    assert table.write(rows(spark, 0, 0).where("false"), commit(3, 4)) == 0
    assert table.last_committed(spark, "B") == 4
    assert table.last_committed(spark, "another") is None
    assert ids(spark.table("ice.db.appended")) == [*range(30), *range(1000, 1010)]
    refused(Conflict, "sink_moved", lambda: table.write(rows(spark, 9, 9), commit(9, 9)))
    assert spark.conf.get("spark.wap.id", None) is None


def a_late_driver_cannot_publish_what_its_successor_has(spark: SparkSession) -> None:
    IcebergSink("ice.db.late").write(rows(spark, 0, 1), commit(0, 1))
    rows(spark, 100, 100).writeTo("ice.db.late").append()
    Late("ice.db.late").write(rows(spark, 0, 1), commit(0, 1))
    assert ids(spark.table("ice.db.late")) == [*range(20), *range(1000, 1010)]


def an_attempt_that_died_before_publishing_holds_nothing(spark: SparkSession) -> None:
    table = IcebergSink("ice.db.staged")
    table.write(rows(spark, 0, 0), commit(0, 0))
    table._stage(rows(spark, 1, 1), commit(1, 1))
    assert table.last_committed(spark, "B") == 0
    assert ids(spark.table("ice.db.staged")) == list(range(10))
    table.write(rows(spark, 1, 1), commit(1, 1))
    assert ids(spark.table("ice.db.staged")) == list(range(20))


def the_marker_outlives_its_snapshots(spark: SparkSession) -> None:
    table = IcebergSink("ice.db.expired")
    table.write(rows(spark, 0, 3), commit(0, 3))
    rows(spark, 100, 100).writeTo("ice.db.expired").append()
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    spark.sql(f"CALL ice.system.expire_snapshots(table => 'db.expired', older_than => {later}, retain_last => 1)")
    assert spark.table("ice.db.expired.snapshots").count() == 1
    assert table.last_committed(spark, "B") == 3
    # A driver that died between publishing and the property: the snapshot says it, and the next write repeats it.
    spark.sql(f"ALTER TABLE ice.db.expired SET TBLPROPERTIES ('{property_of('B', 'iceberg')}' = '3')")
    table._stage(rows(spark, 4, 4), commit(4, 4))
    table._publish(spark, commit(4, 4))
    assert table.last_committed(spark, "B") == 4
    table.write(rows(spark, 4, 4), commit(4, 4))
    assert table._properties(spark)[property_of("B", "iceberg")] == "4"
    assert ids(spark.table("ice.db.expired")) == [*range(50), *range(1000, 1010)]


def a_table_that_was_rolled_back_does_not_hold_what_it_held(spark: SparkSession) -> None:
    table = IcebergSink("ice.db.rolled")
    table.write(rows(spark, 0, 0), commit(0, 0))
    made, head = [
        row["snapshot_id"] for row in spark.table("ice.db.rolled.snapshots").orderBy("committed_at").collect()
    ]
    table.write(rows(spark, 1, 3), commit(1, 3))
    spark.sql(f"CALL ice.system.rollback_to_snapshot('db.rolled', {head})")
    assert table.last_committed(spark, "B") == 0
    table.write(rows(spark, 1, 1), commit(1, 1))
    assert table._properties(spark)[property_of("B", "iceberg")] == "1"
    assert ids(spark.table("ice.db.rolled")) == list(range(20))
    spark.sql(f"CALL ice.system.rollback_to_snapshot('db.rolled', {made})")  # as it was made, without rows
    assert table.last_committed(spark, "B") is None


def the_newest_row_of_a_key_wins_and_a_replay_brings_no_deleted_key_back(spark: SparkSession) -> None:
    name = "ice.db.users"
    table = IcebergSink(name, merge_keys=["user"], delete_when="op = 'delete'")
    first = changes(spark, (0, 0, "ann", PUT), (0, 1, "bob", PUT), (1, 0, "ann", PUT), (1, 1, "cid", PUT))
    table.write(first, commit(0, 1))
    assert users(spark, name) == {"ann": (1, 0), "bob": (0, 1), "cid": (1, 1)}
    second = changes(spark, (2, 0, "bob", PUT), (2, 1, "bob", DELETE), (2, 2, "dan", DELETE), (2, 3, "cid", PUT))
    table.write(second, commit(2, 2))
    after = {"ann": (1, 0), "cid": (2, 3)}
    assert users(spark, name) == after
    table.write(first, commit(0, 1))
    table.write(second, commit(2, 2))
    table.write(changes(spark, (1, 0, "cid", DELETE), (0, 0, "ann", PUT)), commit(0, 1, buffer="C"))
    assert users(spark, name) == after
    table.write(second.where("false"), commit(3, 5))
    assert table.last_committed(spark, "B") == 5


def a_merge_that_another_writer_overtook_is_done_again(spark: SparkSession) -> None:
    name = "ice.db.overtaken"

    class Overtaken(IcebergSink):
        def _publish(self, spark: SparkSession, commit: Commit) -> Snapshot:
            changes(spark, (0, 0, "eve", PUT)).writeTo(name).append()
            return super()._publish(spark, commit)

    table = IcebergSink(name, merge_keys=["user"])
    table.write(changes(spark, (0, 0, "ann", PUT)), commit(0, 0))
    for number, change in ((1, changes(spark, (1, 0, "ann", PUT))), (2, changes(spark, (2, 0, "bob", PUT)))):
        again = commit(number, number)
        refused(Overloaded, "table_busy", lambda: Overtaken(name, merge_keys=["user"]).write(change, again))  # noqa: B023
        table.write(change, again)
    assert sorted(row.user for row in spark.table(name).collect()) == ["ann", "bob", "eve", "eve"]
    assert users(spark, name)["ann"] == (1, 0)


def columns_join_a_table_unless_that_is_switched_off(spark: SparkSession) -> None:
    name = "ice.db.columns"
    spark.sql(f"CREATE TABLE {name} (_seq bigint, _index int, user string, op string) USING iceberg")
    IcebergSink(name).write(changes(spark, (0, 0, "ann", PUT)), commit(0, 0))  # created by others
    wider = changes(spark, (1, 0, "ann", PUT)).selectExpr("*", "struct(1 AS a) AS more")
    refused(Invalid, "sink_rejected", lambda: IcebergSink(name, evolve=False).write(wider, commit(1, 1)))
    IcebergSink(name).write(wider, commit(1, 1))
    assert [row.more for row in spark.table(name).orderBy("_seq").collect()] == [None, (1,)]
    narrow = changes(spark, (2, 0, "bob", PUT)).drop("op")
    IcebergSink(name, merge_keys=["user"]).write(narrow, commit(2, 2))
    assert [row.op for row in spark.table(name).where("user = 'bob'").collect()] == [None]
    text = changes(spark, (3, 0, "ann", PUT)).selectExpr("'x' AS _seq", "_index", "user", "op")
    refused(Invalid, "sink_rejected", lambda: IcebergSink(name).write(text, commit(3, 3)))


def one_kill_in_the_middle_loses_and_repeats_nothing(spark: SparkSession) -> None:
    with TemporaryDirectory() as folder:
        kill_once(spark, [case for case in CASES if case.name == "iceberg"], Path(folder))


Check = Callable[["SparkSession"], None]

QUICK: tuple[Check, ...] = (
    a_range_is_appended_once_also_between_commits_of_other_writers,
    the_newest_row_of_a_key_wins_and_a_replay_brings_no_deleted_key_back,
    one_kill_in_the_middle_loses_and_repeats_nothing,
)
LONG: tuple[Check, ...] = (
    a_late_driver_cannot_publish_what_its_successor_has,
    an_attempt_that_died_before_publishing_holds_nothing,
    the_marker_outlives_its_snapshots,
    a_table_that_was_rolled_back_does_not_hold_what_it_held,
    a_merge_that_another_writer_overtook_is_done_again,
    columns_join_a_table_unless_that_is_switched_off,
)


def main(directory: str, *names: str) -> None:
    needs = IcebergSink("ice.db.table", warehouse=str(Path(directory) / "warehouse")).needs(spark_version())
    spark = open_session("iceberg", master="local[2]", conf=SMALL, needs=[needs])
    outcomes = {}
    for check in [check for check in QUICK + LONG if check.__name__ in names]:
        began = time.monotonic()
        try:
            check(spark)
            outcomes[check.__name__] = "ok"
        except Exception:
            outcomes[check.__name__] = traceback.format_exc()
        print(f"{check.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    spark.stop()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
