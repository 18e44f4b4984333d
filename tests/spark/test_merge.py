"""What needs no Spark of MERGE and of Delta's marker: the statement, and which files of a log are read."""

from __future__ import annotations

import pytest

from tenure.errors import Corrupt, Invalid
from tenure.spark.sinks.delta.marker import LogFiles, log_files
from tenure.spark.sinks.delta.sink import DeltaSink
from tenure.spark.sinks.merge import Merge

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commits(*versions: int) -> list[str]:
    return [f"{version:020}.json" for version in versions]


def checkpoint(version: int, kind: str = "parquet") -> str:
    return f"{version:020}.checkpoint.{kind}"


def test_a_merge_replaces_older_rows_only_and_inserts_no_deleted_ones():
    merge = Merge(["user"], delete_when="op = 'delete'")
    assert merge.statement("the.`table`", "rows", ["user", "_seq", "_index"]).splitlines() == [
        "MERGE INTO the.`table` AS t USING rows AS s ON t.`user` <=> s.`user`",
        "WHEN MATCHED AND coalesce((t.`_seq` < s.`_seq` OR (t.`_seq` = s.`_seq` AND "
        "(t.`_index` < s.`_index` OR (t.`_index` = s.`_index` AND false)))), true) AND s.__tenure_delete THEN DELETE",
        "WHEN MATCHED AND coalesce((t.`_seq` < s.`_seq` OR (t.`_seq` = s.`_seq` AND "
        "(t.`_index` < s.`_index` OR (t.`_index` = s.`_index` AND false)))), true) THEN UPDATE SET "
        "t.`user` = s.`user`, t.`_seq` = s.`_seq`, t.`_index` = s.`_index`",
        "WHEN NOT MATCHED AND NOT s.__tenure_delete THEN INSERT (`user`, `_seq`, `_index`) "
        "VALUES (s.`user`, s.`_seq`, s.`_index`)",
    ]


def test_a_merge_without_deletes_does_not_speak_of_them():
    statement = Merge(["a`b"], order_by=["n"]).statement("t1", "rows", ["a`b", "n"])
    assert "DELETE" not in statement
    assert "t.`a``b` <=> s.`a``b`" in statement


@pytest.mark.parametrize(("ours", "theirs"), [(True, True), (True, False), (False, True)])
def test_the_place_of_a_malformed_entry_is_a_part_of_its_key(ours: bool, theirs: bool):
    def columns(has_malformed: bool) -> list[str]:
        return ["user", "_seq", "_index", *(["_malformed"] if has_malformed else [])]

    statement = Merge(["user"]).statement("t1", "rows", columns(ours), there=columns(theirs))
    there, here = (
        [f"if({row}.`_malformed` IS NULL, NULL, {row}.`{name}`)" if known else "NULL" for name in ("_seq", "_index")]
        for row, known in (("t", theirs), ("s", ours))
    )
    condition = " AND ".join(f"{one} <=> {other}" for one, other in zip(there, here, strict=True))
    assert statement.splitlines()[0].endswith(f"ON t.`user` <=> s.`user` AND {condition}")


def test_a_merge_needs_its_columns():
    with pytest.raises(Invalid):
        Merge([])
    with pytest.raises(Invalid):
        Merge("user")
    with pytest.raises(Invalid, match="_index"):
        Merge(["user"]).check(["user", "_SEQ"])
    with pytest.raises(Invalid):
        DeltaSink("t", delete_when="true")


def test_a_log_is_read_from_its_newest_checkpoint_on():
    assert log_files([]) == LogFiles((), ())
    assert log_files([*commits(0, 1), "00000000000000000001.crc"]) == LogFiles((), (*commits(0, 1),))
    names = [*commits(*range(13)), checkpoint(5), checkpoint(10), f"{3:020}.{8:020}.compacted.json"]
    assert log_files(names) == LogFiles((checkpoint(10),), (*commits(11, 12),))
    assert log_files([*commits(11, 12), checkpoint(10)]) == LogFiles((checkpoint(10),), (*commits(11, 12),))
    assert log_files([checkpoint(10)]) == LogFiles((checkpoint(10),), ())


def test_a_checkpoint_of_several_parts_counts_when_it_is_whole():
    parts = [checkpoint(10, f"{part:010}.{3:010}.parquet") for part in (1, 2, 3)]
    names = [*commits(*range(12)), checkpoint(5)]
    assert log_files([*names, *parts[:2]]) == LogFiles((checkpoint(5),), (*commits(*range(6, 12)),))
    assert log_files([*names, *parts]) == LogFiles((*parts,), (*commits(11),))


def test_a_checkpoint_of_the_second_kind_may_be_json():
    assert log_files([*commits(10, 11), checkpoint(10, f"{UUID}.json")]) == LogFiles(
        (), (checkpoint(10, f"{UUID}.json"), *commits(11))
    )
    assert log_files([checkpoint(10, f"{UUID}.parquet")]).parquet == (checkpoint(10, f"{UUID}.parquet"),)


def test_a_hole_in_the_log_is_not_read_over():
    for names in (commits(1, 2), [checkpoint(5), *commits(6, 8)], [checkpoint(5), *commits(7)]):
        with pytest.raises(Corrupt):
            log_files(names)


def test_a_spark_without_delta_is_told_which_have_it():
    assert DeltaSink("a.table").needs((3, 5)).packages == ("io.delta:delta-spark_2.12:3.3.3",)
    assert len(DeltaSink("s3://bucket/table").needs((4, 2)).packages) == 2
    with pytest.raises(Invalid, match="SmallDelta") as refused:
        DeltaSink("a.table").needs((4, 3))
    assert refused.value.code == "no_connector"
