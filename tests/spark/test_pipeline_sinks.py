"""A pipeline file into every kind of table: each row once, however often it is run or replayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tenure.buffer import Lag
from tenure.client.client import Client
from tenure.errors import Invalid
from tenure.spark.pipeline import read_pipeline
from tenure.spark.pipeline.file.sink import on_nul_of
from tenure.spark.pipeline.runner.runner import backfill_pipeline
from tenure.spark.pipeline.runner.topics import topic_lag
from tests.kit.server import serving
from tests.spark.conftest import Filled
from tests.spark.crash_sinks import read_postgres
from tests.spark.pg import running_postgres
from tests.spark.pipeline_case import FIRST, LOCAL, PIPELINE, SECOND, ran, rows, set_up, written
from tools.sparks import directory_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
ICEBERG_SPARK = "4.1.4"
WRITTEN = [(1, 600, 0, 2), (2, 700, 0, 1), (6, 925, 1, 3)]
"""id, cents, _seq and _index of the rows that are as they should be."""
Read = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return set_up(tmp_path)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with running_postgres() as url:
        yield url


def into(sink: str) -> str:
    """The pipeline with another sink, and a buffer that keeps what was read."""
    source = PIPELINE[: PIPELINE.index("[sink]")].replace("entries_max", 'retain_for = "1h"\nentries_max')
    return f"{source}[sink]\n{sink}"


def is_once_in(spark: SparkSession, file: Path, read: Read, *, table: str, other: str) -> None:
    """Run, run again, replay into another table and again: the first of each writes, and the second adds nothing."""
    first = ran(spark, file)
    assert (first.state, first.ranges, first.figures.rows, first.figures.quarantined) == ("done", 2, 3, 3)
    assert read(table) == WRITTEN
    assert ran(spark, file).ranges == 0
    for ranges in (2, 0):
        replayed = backfill_pipeline(read_pipeline(file), LOCAL, into=other, first=0, last=1, spark=spark)
        assert replayed.ranges == ranges
    assert read(table) == read(other) == WRITTEN
    assert len(rows(spark, file.parent / "tables/quarantine", "seq")) == 3
    assert len(rows(spark, file.parent / "tables/expectations", "low")) == 6


def picked(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select("id", "cents", "_seq", "_index").collect())


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "small_delta"])
def test_a_pipeline_into_delta(spark: SparkSession, home: Path, filled: Filled, kind: str) -> None:
    sink = f'kind = "{kind}"\npath = "orders"\npartition_by = ["day"]\n'
    file = written(home, filled(FIRST, SECOND), into(sink))

    def read(table: str) -> list[tuple[Any, ...]]:
        return picked(spark.read.format("delta").load(str(home / table)))

    is_once_in(spark, file, read, table="orders", other="again")


@pytest.mark.full
def test_a_pipeline_into_a_small_iceberg_table(spark: SparkSession, home: Path, filled: Filled) -> None:
    from tenure.spark.sinks.iceberg.small import SmallIceberg

    sink = 'kind = "small_iceberg"\ntable = "db.orders"\nwarehouse = "warehouse"\n'
    file = written(home, filled(FIRST, SECOND), into(sink))

    def read(table: str) -> list[tuple[Any, ...]]:
        found = SmallIceberg(table, warehouse=home / "warehouse")._load()
        assert found is not None
        return picked(spark.read.parquet(*found.inspect.files()["file_path"].to_pylist()))

    is_once_in(spark, file, read, table="db.orders", other="db.again")


@pytest.mark.full
def test_a_pipeline_into_postgres(
    spark: SparkSession, home: Path, filled: Filled, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_DB", database)
    file = written(home, filled(FIRST, SECOND), into('kind = "postgres"\nurl_env = "ORDERS_DB"\ntable = "orders"\n'))

    def read(table: str) -> list[tuple[Any, ...]]:
        return picked(read_postgres(spark, f"{database}#{table}"))

    is_once_in(spark, file, read, table="orders", other="orders_again")


NOTES = """\
[pipeline]
name = "notes"
[source]
buffer = "{buffer}"
[decode]
schema = "notes.toml"
{quarantine}
[sink]
kind = "postgres"
url_env = "ORDERS_DB"
table = "{table}"
"""
WITH_NUL = [b'{"id": 1, "tags": ["fine"]}', rb'{"id": 2, "tags": ["a", "b\u0000"]}', b'{"id": 3, "tags": []}']


@pytest.mark.parametrize("quarantined", [True, False])
def test_a_nul_in_an_entry_stops_no_pipeline_into_postgres(
    spark: SparkSession,
    home: Path,
    filled: Filled,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    quarantined: bool,
) -> None:
    monkeypatch.setenv("ORDERS_DB", database)
    (home / "notes.toml").write_text('[fields]\nid = "long"\ntags = ["string"]\n')
    table = f"notes_{quarantined}".lower()
    section = '[quarantine]\npath = "tables/aside"' if quarantined else ""
    file = written(home, filled(WITH_NUL), NOTES.replace("{table}", table).replace("{quarantine}", section))
    run = ran(spark, file)
    stored = {row["id"]: row["tags"] for row in read_postgres(spark, f"{database}#{table}").collect()}
    assert (run.state, run.figures.quarantined) == ("done", int(quarantined))
    if quarantined:
        assert stored.keys() == {1, 3}
        aside = spark.read.parquet(str(home / "tables/aside")).select("reason", "entry").collect()
        assert [tuple(row) for row in aside] == [("no NUL", WITH_NUL[1])]
    else:
        assert stored.keys() == {1, 2, 3}
        assert "b\ufffd" in stored[2]


def test_a_time_that_postgres_has_not_stops_no_pipeline_with_a_quarantine(
    spark: SparkSession, home: Path, filled: Filled, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_DB", database)
    (home / "notes.toml").write_text('[fields]\nid = "long"\nday = "date"\nat = "timestamp"\ndays = ["date"]\n')
    fit = [
        b'{"id": 1, "day": "-4712-01-01", "at": "-4712-01-01T12:00:00Z"}',
        b'{"id": 2, "day": "+999999-12-31", "at": "+294247-01-10T04:00:54Z", "days": ["-5000-01-01"]}',
        b'{"id": 3}',
    ]
    beyond = [
        b'{"id": 4, "day": "-4713-12-31"}',
        b'{"id": 5, "at": -946771200000}',
        b'{"id": 6, "day": "+5881580-01-01"}',
    ]
    section = '[quarantine]\npath = "tables/beyond"'
    text = NOTES.replace("{table}", "times").replace("{quarantine}", section)
    run = ran(spark, written(home, filled([*fit, *beyond]), text))
    stored = read_postgres(spark, f"{database}#times").select("id").collect()
    assert (run.figures.malformed, run.figures.quarantined) == (0, 3)
    assert sorted(row["id"] for row in stored) == [1, 2, 3]
    aside = spark.read.parquet(str(home / "tables/beyond")).orderBy("index").select("reason", "entry").collect()
    assert [tuple(row) for row in aside] == [("time fits", entry) for entry in beyond]


def test_what_becomes_of_a_nul_is_checked_with_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_DB", "postgresql://etl@127.0.0.1/sales")
    (home / "notes.toml").write_text('[fields]\nid = "long"\n')
    text = NOTES.replace("{table}", "notes").replace("{quarantine}", "")
    with pytest.raises(Invalid, match=r'on_nul = "quarantine" needs a \[quarantine\]'):
        read_pipeline(written(home, "buffer", text + 'on_nul = "quarantine"\n'))
    for choice in ("replace", "refuse"):
        assert read_pipeline(written(home, "buffer", f'{text}on_nul = "{choice}"\n')).sink.on_nul == choice
    aside = text.replace("[sink]", '[quarantine]\npath = "aside"\n[sink]')
    assert on_nul_of(read_pipeline(written(home, "buffer", aside))) == "quarantine"
    with pytest.raises(Invalid, match="nothing is sent to the quarantine"):
        read_pipeline(written(home, "buffer", aside + 'on_nul = "replace"\n'))


@pytest.mark.full
def test_a_pipeline_into_a_topic(spark: SparkSession, home: Path, filled: Filled) -> None:
    with serving(home / "data") as server, Client(server.url) as client:
        for topic in ("orders", "again"):
            client.put_topic(topic, durability="fsync")
        sink = f'kind = "topic"\nurl = "{server.url}"\ntopic = "orders"\nstaging = "staging"\n'
        file = written(home, filled(FIRST, SECOND), into(sink + 'select = ["to_json(struct(*)) AS payload"]\n'))

        def read(table: str) -> list[tuple[Any, ...]]:
            records = client.diff(table, from_seq=0, limit=100).records
            found = [msgspec.json.decode(each.data) for each in records if each.data is not None]
            return sorted((one["id"], one["cents"], one["_seq"], one["_index"]) for one in found)

        is_once_in(spark, file, read, table="orders", other="again")


TOPIC = """\
[pipeline]
name = "orders"
[source]
topic = "orders"
url = "{url}"
entries_max = 3
"""


@pytest.mark.full
def test_a_pipeline_from_a_topic_holds_each_record_once_also_with_a_new_checkpoint(
    spark: SparkSession, home: Path
) -> None:
    text = TOPIC + PIPELINE[PIPELINE.index("[decode]") :] + '[schedule]\nrun = "once"\ncheckpoint = "{checkpoint}"\n'
    with serving(home / "data") as server, Client(server.url) as client:
        client.put_topic("orders", durability="fsync")
        client.produce("orders", [json.loads(each) if each != b"not json" else "no object" for each in FIRST])
        told = text.replace("{url}", server.url)
        file = written(home, "", told.replace("{checkpoint}", "checkpoint"))
        first = ran(spark, file, unchecked=("entries", "step 1"))
        assert (first.state, first.ranges, first.low, first.high) == ("done", 2, 1, 4)
        assert (first.figures.entries, first.figures.rows, first.figures.quarantined) == (4, 2, 1)
        assert "entries" in first.figures.unchecked  # and step 1, which a range of one malformed record does not reach
        idle = ran(spark, file)
        assert (idle.ranges, topic_lag(read_pipeline(file), idle.reached)) == (0, Lag(0, 0))
        client.produce("orders", [json.loads(each) for each in SECOND])
        written(home, "", told.replace("{checkpoint}", "another"))
        again = ran(spark, file, unchecked=("entries", "step 1"))
        assert (again.low, again.high, again.figures.rows) == (5, 8, 1)
    found = rows(spark, home / "tables/orders", "id", "cents", "_seq", "_index")
    assert found == [(1, 600, 3, 0), (2, 700, 2, 0), (6, 925, 8, 0)]
    assert [row[0] for row in rows(spark, home / "tables/quarantine", "seq")] == [4, 5, 7]


@pytest.mark.full
def test_a_pipeline_into_iceberg_by_the_command(home: Path, filled: Filled) -> None:
    sink = 'kind = "iceberg"\ntable = "ice.db.orders"\nwarehouse = "warehouse"\npartition_by = ["day"]\n'
    file = written(home, filled(FIRST, SECOND), into(sink))
    paths = [str(directory_of(ICEBERG_SPARK)), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def tenure(*arguments: object) -> dict[str, Any]:
        command = [str(Path(sys.executable).with_name("tenure")), "pipeline", *map(str, arguments), "--json"]
        command += ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    ends = ("--from", 0, "--to", 1, "--into", "ice.db.again")
    for words in (("run", file), ("backfill", file, *ends)):
        first, second = tenure(*words), tenure(*words)
        assert (first["ranges"], first["figures"]["rows"], second["ranges"]) == (2, 3, 0)
