"""A real small disk under the table that fills up: it is named, waited for, and the range goes on. Needs root."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tenure.cli.app import app
from tenure.errors import Overloaded
from tenure.spark.jobs.ingest import follow, ingest
from tenure.spark.jobs.retrying import Waiting
from tenure.spark.pipeline.notes.history import last_run
from tenure.spark.sinks.delta.small import SmallDelta
from tenure.spark.sinks.files.table import FileTable, files
from tenure.spark.sinks.iceberg.small import SmallIceberg
from tenure.spark.sinks.protocol import SparkSink
from tests.kit.small_disk import small_disk
from tests.spark.command import running
from tests.spark.conftest import Filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE_BYTES = 8 << 20
ENTRIES = [os.urandom(1_000) for _ in range(2_000)]
"""Two megabytes that do not compress."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with less room than the entries need, until the file ``ballast`` is removed."""
    with small_disk(tmp_path / "disk", size_bytes=SIZE_BYTES) as mounted:
        yield mounted


def delta(where: Path) -> SparkSink:
    from tenure.spark.sinks.delta.sink import DeltaSink

    return DeltaSink(where)


TABLES: dict[str, Callable[[Path], SparkSink]] = {
    "files": FileTable,
    "delta": delta,
    "small_delta": SmallDelta,
    "small_iceberg": lambda where: SmallIceberg("a.b", warehouse=where),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", TABLES)
def test_a_full_disk_is_named_and_the_range_is_there_once_when_there_is_room(
    kind: str, spark: SparkSession, disk: Path, filled: Filled
):
    url, sink = filled(ENTRIES), TABLES[kind](disk / "table")
    with pytest.raises(Overloaded) as caught:
        ingest(spark, url, sink, retry_ms=0)
    assert caught.value.code == "disk_full"
    assert "No space left on device" in caught.value.message
    left_bytes = sum(path.stat().st_size for path in (disk / "table").rglob("*.parquet"))
    assert kind != "files" or left_bytes == 0
    (disk / "ballast").unlink()
    assert ingest(spark, url, sink).entries == len(ENTRIES)
    assert ingest(spark, url, sink).entries == 0


@pytest.mark.full
def test_a_job_that_follows_waits_for_room_and_goes_on(spark: SparkSession, disk: Path, filled: Filled):
    waits, stop = list[Waiting | None](), threading.Event()

    def make_room(waiting: Waiting | None) -> None:
        waits.append(waiting)
        (disk / "ballast").unlink(missing_ok=True)

    follow(
        spark,
        filled(ENTRIES),
        FileTable(disk / "table"),
        stop=stop,
        on_wait=make_room,
        on_range=lambda _: stop.set(),
    )
    assert isinstance(waits[0], Waiting)
    assert waits[0].error.code == "disk_full"
    assert waits[-1] is None
    frame = spark.read.parquet(str(disk / "table"))
    assert (frame.count(), frame.select("index").distinct().count()) == (len(ENTRIES), len(ENTRIES))


PIPELINE = """\
[pipeline]
name = "readings"
[source]
buffer = "{buffer}"
[decode]
format = "binary"
[sink]
kind = "parquet"
path = "{table}"
"""
STREAMING = '[schedule]\nrun = "streaming"\nevery_ms = 100\ncheckpoint = "{checkpoint}"\n'


def described(home: Path, disk: Path, url: str, more: str = "") -> Path:
    """A pipeline file whose table is on the small disk, and nothing else."""
    file = home / "pipeline.toml"
    text = (PIPELINE + more).replace("{buffer}", url).replace("{table}", str(disk / "table"))
    file.write_text(text.replace("{checkpoint}", str(home / "checkpoint")))
    return file


def indexes(table: Path) -> list[int]:
    return sorted(number for path in files(table) for number in pq.ParquetFile(path).read()["_index"].to_pylist())


@pytest.mark.full
@pytest.mark.parametrize(("more", "option"), [("", ["--follow"]), (STREAMING, [])], ids=["follow", "streaming"])
def test_a_command_that_follows_names_the_full_disk_waits_and_goes_on(
    tmp_path: Path, disk: Path, filled: Filled, more: str, option: list[str]
):
    url = filled(ENTRIES)
    file = described(tmp_path, disk, url, more)

    def refused_twice() -> bool:
        run = last_run(url, "readings")
        return run is not None and run.waiting is not None and run.waiting.attempts >= 2

    def held() -> bool:
        run = last_run(url, "readings")
        return run is not None and run.waiting is None and bool(files(disk / "table"))

    with running("pipeline", "run", file, *option) as child:
        child.until(refused_twice)
        shown = CliRunner().invoke(app, ["pipeline", "status", str(file)], env={"COLUMNS": "1000"}).stdout
        (disk / "ballast").unlink()
        child.until(held)
        child.process.send_signal(signal.SIGTERM)
        code, out, err = child.ended()
    assert code == 0, err
    assert "as the disk under the table is full: " in shown.partition("because: ")[2]
    assert "Free some space: the range is written again then" in shown
    assert err.count("this is refused for now, and tried again: ") == 1
    assert "No space left on device" in err
    assert "readings: stopped" in out
    assert indexes(disk / "table") == list(range(len(ENTRIES)))


@pytest.mark.full
def test_a_command_that_ends_by_itself_gives_up_on_a_full_disk_as_refused_for_now(
    tmp_path: Path, disk: Path, filled: Filled
):
    url = filled(ENTRIES)
    file = described(tmp_path, disk, url)
    with running("pipeline", "run", file, "--once", "--json") as child:
        code, out, _ = child.ended()
    assert code == 5
    error = json.loads(out)["error"]
    assert (error["code"], "the disk under the table is full" in error["message"]) == ("disk_full", True)
    assert "run again: the next run goes on behind what the table holds" in error["message"]
    noted = last_run(url, "readings")
    assert noted is not None
    assert (noted.state, noted.retries > 1) == ("failed", True)
    (disk / "ballast").unlink()
    with running("pipeline", "run", file, "--once") as child:
        code, out, err = child.ended()
    assert code == 0, err
    assert "2,000 rows written" in out
    assert indexes(disk / "table") == list(range(len(ENTRIES)))
