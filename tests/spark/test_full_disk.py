"""A real small disk under the table that fills up: it is named, waited for, and the range goes on. Needs root."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tenure.errors import Overloaded
from tenure.spark.ingesting import follow, ingest
from tenure.spark.retrying import Waiting
from tenure.spark.sinks.file_table import FileTable
from tenure.spark.sinks.protocol import SparkSink
from tenure.spark.sinks.small_delta import SmallDelta
from tenure.spark.sinks.small_iceberg import SmallIceberg
from tests.spark.conftest import Filled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE_BYTES = 8 << 20
ENTRIES = [os.urandom(1_000) for _ in range(2_000)]
"""Two megabytes that do not compress."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with less room than the entries need, until the file ``ballast`` is removed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    target = tmp_path / "disk"
    target.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", target], check=False)
    if mounted.returncode != 0:
        pytest.skip("mount was refused here")
    (target / "ballast").write_bytes(bytes(SIZE_BYTES - (1 << 20)))
    yield target
    subprocess.run(["umount", "-l", target], check=False)


def delta(where: Path) -> SparkSink:
    from tenure.spark.sinks.delta import DeltaSink

    return DeltaSink(where)


TABLES: dict[str, Callable[[Path], SparkSink]] = {
    "files": FileTable,
    "delta": delta,
    "small_delta": SmallDelta,
    "small_iceberg": lambda where: SmallIceberg("a.b", warehouse=where),
}


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
