"""The schema of a file table: what may join it, what is refused, and where it is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid
from tenure.objects.background import background
from tenure.spark.sinks.files.lines import Mark
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.schema import TableSchema, join, schema_of, schema_of_file
from tenure.spark.sinks.files.table import FileTable
from tenure.spark.sinks.places import Place


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()],
    }


def array(element: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def table(partition_by: tuple[str, ...] = (), **fields: Any) -> TableSchema:
    return schema_of(struct(**fields), partition_by)


@pytest.mark.parametrize(
    ("held", "given", "told"),
    [
        ("long", "string", "v is long in the table and string in the rows"),
        ("integer", "long", "v is integer in the table and long in the rows"),
        ("decimal(10,2)", "decimal(12,2)", r"v is decimal\(10,2\) in the table and decimal\(12,2\)"),
        (struct(a=struct(b="long")), struct(a=struct(b="string")), r"v\.a\.b is long in the table and string"),
        (array("date"), array("string"), "v is date in the table and string in the rows"),
        (array("date"), "date", "v is array<date> in the table and date in the rows"),
        ("date", struct(a="date"), "v is date in the table and struct<a: date> in the rows"),
    ],
)
def test_another_type_is_refused_with_both_types(held: Any, given: Any, told: str):
    with pytest.raises(Invalid, match=told) as caught:
        join(table(id="long", v=held), table(id="long", v=given))
    assert caught.value.code == "sink_rejected"


def test_columns_and_nested_fields_join_and_may_be_left_out():
    before = table(id="long", more=array(struct(a="long"), nulls=False))
    after = join(before, table(ID="long", more=array(struct(b="date")), new="string"))
    assert after == table(id="long", more=array(struct(a="long", b="date")), new="string")
    assert join(after, before) == after
    assert join(after, table(id="long")) == after


def test_other_partitions_are_refused():
    with pytest.raises(Invalid, match="is partitioned by day, and not by day, hour"):
        join(table(("day",), day="date"), table(("day", "hour"), day="date", hour="integer"))
    with pytest.raises(Invalid, match="is partitioned by nothing, and not by day"):
        join(table(day="date"), table(("day",), day="date"))


def test_a_file_of_an_older_version_shows_the_columns_and_the_partitions():
    text = json.dumps(struct(id="long")).encode()
    found = schema_of_file(
        "day=2026-11-19/a%20b=x/0-0-part.parquet", {b"org.apache.spark.sql.parquet.row.metadata": text}
    )
    assert found == table(("day", "a b"), id="long")
    assert schema_of_file("part.parquet", None) is None
    assert schema_of_file("part.parquet", {b"ARROW:schema": b""}) is None


def test_the_log_keeps_the_schema_over_its_compact_files_and_other_writers(tmp_path: Path):
    place = Place(tmp_path)
    log, files = FileLog(place.store(), place.spark_url), FileTable(tmp_path)
    seen = list[TableSchema | None]()
    for number in range(25):
        commit = Commit("B" if number % 2 else "C", "files", number // 2, number // 2, 1)
        schema = {0: table(id="long"), 3: table(id="long", a="date"), 4: table(id="long", b="date")}.get(number)
        background().run(files._commit(log, commit, "attempt", [], schema))
        seen.append(background().run(log.read()).schema)
    whole = table(id="long", a="date", b="date")
    assert seen[0] == seen[2] == table(id="long")
    assert seen[4:] == [whole] * 21
    sizes = [path.stat().st_size for path in sorted((tmp_path / "_spark_metadata").glob("2?")) if path.is_file()]
    assert max(sizes) < 400  # only a compact file restates it
    # A writer that planned before another one changed the type is refused at its commit.
    with pytest.raises(Invalid, match="a is date in the table and string in the rows"):
        background().run(files._commit(log, Commit("B", "files", 12, 12, 1), "x", [], table(id="long", a="string")))
    assert background().run(log.read()).last == 24


def test_a_schema_in_the_log_is_nothing_that_other_readers_take_for_a_file(tmp_path: Path):
    place = Place(tmp_path)
    log = FileLog(place.store(), place.spark_url)
    state = background().run(log.read())
    mark = Mark.of(Commit("B", "files", 0, 0, 1), "attempt")
    assert background().run(log.append(state, mark, [], schema=table(id="long")))
    version, line = (tmp_path / "_spark_metadata/0").read_text().splitlines()
    assert (version, json.loads(line)["isDir"], json.loads(line)["schema"]) == (
        "v1",
        True,
        {"columns": {"id": "long"}, "partition_by": []},
    )
