"""Streaming from a buffer on a real Spark: what is promised of the last batch, of a second query and of a kill."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure.buffer import inspect
from tenure.buffer.blocking import Consumer
from tenure.buffer.ingest.sink import Commit
from tenure.spark.jobs.streaming import write_stream
from tenure.spark.sinks.protocol import Needs
from tenure.spark.stream.formats import register
from tenure.spark.stream.offsets import StreamRange, offsets_of
from tests.spark.conftest import Filled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCHES = [[b"%d-%d" % (batch, entry) for entry in range(10)] for batch in range(6)]
WAIT_S = 240
pytestmark = pytest.mark.timeout(600)  # a session starts in a minute where the machine is busy

Started = Callable[..., "StreamingQuery"]


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Iterator[Started]:
    """Start queries into ``tmp_path / table``, each with its checkpoint, and stop them after the test."""
    register(spark)
    queries: list[StreamingQuery] = []

    def start(
        url: str, *, name: str = "table", now: bool = False, columns: str | None = None, **options: Any
    ) -> StreamingQuery:
        source = spark.readStream.format("tenure-buffer")
        writer = (
            (source.schema(columns) if columns else source)
            .options(**{"pollMs": "20"} | {key: str(value) for key, value in options.items()})
            .load(url)
            .writeStream.format("parquet")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        )
        queries.append((writer.trigger(availableNow=True) if now else writer).start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def entries(spark: SparkSession, table: Path) -> list[bytes]:
    rows = spark.read.parquet(str(table)).orderBy("seq", "index").collect()
    return [bytes(row.entry) for row in rows]


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [entry for batch in batches for entry in batch]


def standing(url: str, group: str = "default") -> tuple[int, int]:
    """The group's epoch, -1 before its first start, and the first batch that it has not acknowledged."""
    found = next((stat for stat in asyncio.run(inspect.stat(url)).groups if stat.group == group), None)
    if found is None:
        return -1, 0
    return found.epoch, 0 if found.last_acked is None else found.last_acked + 1


def acknowledged(url: str, seq: int, query: StreamingQuery, *, group: str = "default") -> bool:
    """Whether the frontier comes to ``seq`` while the query runs."""
    until = time.monotonic() + WAIT_S
    while standing(url, group)[1] != seq and time.monotonic() < until:
        assert query.isActive, query.exception()
        time.sleep(0.2)
    return standing(url, group)[1] == seq


@pytest.mark.full
def test_an_idle_queue_still_acknowledges_its_last_batch(
    spark: SparkSession, filled: Filled, started: Started, tmp_path: Path
):
    url = filled(*BATCHES[:3])
    query = started(url, maxEntriesPerTrigger=20)
    assert acknowledged(url, 3, query)  # nothing came after them
    assert entries(spark, tmp_path / "table") == flat(BATCHES[:3])
    filled(*BATCHES[3:], url=url)
    assert acknowledged(url, 6, query)
    assert entries(spark, tmp_path / "table") == flat(BATCHES)
    progress = json.loads(query.recentProgress[0].json)["sources"][0]
    assert (progress["numInputRows"], progress["latestOffset"]["seq"]) == (20, 3)
    offsets = [offsets_of(str(tmp_path / "table-checkpoint"), batch) for batch in (0, 1)]
    assert [(found.low, found.high) for found in offsets if found] == [(0, 1), (2, 2)]


def test_available_now_drains_and_acknowledges_everything(
    spark: SparkSession, filled: Filled, started: Started, tmp_path: Path
):
    url = filled(*BATCHES)
    assert started(url, now=True, maxEntriesPerTrigger=25).awaitTermination(WAIT_S)
    assert (entries(spark, tmp_path / "table"), standing(url)[1]) == (flat(BATCHES), 6)
    assert started(url, now=True).awaitTermination(WAIT_S)  # again, with nothing new
    assert entries(spark, tmp_path / "table") == flat(BATCHES)


def test_a_query_that_names_its_columns_gets_those_and_no_others(
    spark: SparkSession, filled: Filled, started: Started, tmp_path: Path
):
    url = filled(*BATCHES)
    assert started(url, now=True, columns="index bigint, entry binary").awaitTermination(WAIT_S)
    table = spark.read.parquet(str(tmp_path / "table"))
    assert table.columns == ["index", "entry"]
    assert sorted(bytes(row.entry) for row in table.collect()) == sorted(flat(BATCHES))
    with pytest.raises(Exception, match="value string is no column of a buffer"):
        started(url, name="other", now=True, columns="value string").awaitTermination(WAIT_S)


def test_a_restart_without_new_data_acknowledges_what_was_committed(
    spark: SparkSession, filled: Filled, started: Started, tmp_path: Path
):
    """A query that died between Spark's commit and the acknowledgement leaves a group behind its checkpoint."""
    url = filled(*BATCHES)
    with Consumer(url, group="behind"):
        assert started(url, now=True).awaitTermination(WAIT_S)
    assert standing(url, "behind")[1] == 0
    query = started(url, group="behind")
    assert acknowledged(url, 6, query, group="behind")
    query.stop()
    assert entries(spark, tmp_path / "table") == flat(BATCHES)


def test_a_second_query_on_the_group_ends_the_first(filled: Filled, started: Started):
    url = filled(*BATCHES)
    first = started(url, name="first")
    assert acknowledged(url, 6, first)
    second = started(url, name="second")
    until = time.monotonic() + WAIT_S
    while first.isActive and time.monotonic() < until:
        time.sleep(0.2)
    assert "another consumer of group default has started" in str(first.exception())
    assert "One query reads a group" in str(first.exception())
    filled(BATCHES[0], url=url)
    assert acknowledged(url, 7, second)


def test_a_damaged_batch_fails_the_query_or_is_skipped_on_the_record(
    spark: SparkSession, filled: Filled, started: Started, tmp_path: Path
):
    url = filled(*BATCHES)
    home = Path(url.removeprefix("file://"))
    sorted((home / "data").iterdir())[3].unlink()
    with pytest.raises(Exception, match=r"batch 3 .* is gone"):
        started(url, now=True).awaitTermination(WAIT_S)
    assert standing(url)[1] == 0
    assert started(url, now=True, failOnDataLoss="false").awaitTermination(WAIT_S)
    assert entries(spark, tmp_path / "table") == flat(BATCHES[:3] + BATCHES[4:])
    assert [path.name for path in (home / "quarantine").iterdir()] == [f"{3:020}-default.json"]
    assert standing(url)[1] == 6


def test_a_bad_option_is_named_and_a_frame_that_is_only_loaded_moves_nothing(spark: SparkSession, filled: Filled):
    register(spark)
    url = filled(BATCHES[0])
    before = standing(url)
    with pytest.raises(Exception, match="option maxEntriesPerTrigger must be a whole number"):
        spark.readStream.format("tenure-buffer").option("maxEntriesPerTrigger", "0").load(url)
    frame = spark.readStream.format("tenure-buffer").load(url)
    assert frame.isStreaming
    assert frame.columns == ["seq", "index", "ingestion_time", "metadata", "entry"]
    assert standing(url) == before


class Table:
    """A sink that keeps what it is given, and dies on request."""

    name = "table"
    schema_version = 1

    def __init__(self, die_at: int) -> None:
        self.die_at = die_at
        self.commits: list[Commit] = []
        self.entries: list[bytes] = []

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        return Needs()

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        return self.commits[-1].high if self.commits else None

    def write(self, frame: DataFrame, commit: Commit) -> None:
        self.commits.append(commit)
        if len(self.commits) == self.die_at:
            raise RuntimeError("the sink died")
        self.entries += [bytes(row.upper) for row in frame.orderBy("seq", "index").collect()]


@pytest.mark.full
def test_each_micro_batch_is_a_commit_that_names_its_range_and_has_the_same_name_again(
    spark: SparkSession, filled: Filled, tmp_path: Path
):
    register(spark)
    url, checkpoint, sink = filled(*BATCHES), str(tmp_path / "checkpoint"), Table(die_at=2)

    def run() -> None:
        stream = spark.readStream.format("tenure-buffer").option("maxEntriesPerTrigger", "25").load(url)
        query = write_stream(
            stream,
            sink,
            checkpoint=checkpoint,
            transform=lambda frame: frame.selectExpr("seq", "index", "entry AS upper"),
            trigger={"availableNow": True},
        )
        query.awaitTermination(WAIT_S)

    with pytest.raises(Exception, match="the sink died"):
        run()
    run()
    buffer = sink.commits[0].buffer
    assert sink.commits == [Commit(buffer, "table", *range_, 1) for range_ in ((0, 1), (2, 3), (2, 3), (4, 5))]
    assert sink.entries == flat(BATCHES)
    assert offsets_of(checkpoint, 1) == StreamRange(buffer, 2, 3)
    assert standing(url)[1] == 6


# Killed


def drive(url: str, home: Path, *, per_trigger: int, kill_behind: int | None, conf: tuple[str, ...] = ()) -> None:
    """Run a query in a process; with ``kill_behind`` it is killed once that many more micro-batches are committed."""
    command = [sys.executable, "-m", "tests.spark.stream_driver", url, str(home / "table"), str(home / "checkpoint")]
    with (home / "errors.txt").open("a") as errors:
        process = subprocess.Popen(
            [*command, str(per_trigger), *conf], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    with process, process.stdout:
        seen: list[str] = []
        for line in process.stdout:
            seen.append(line.strip())
            if kill_behind is not None and len(seen) > kill_behind:
                process.kill()
                return
    assert seen[-1] == "drained", (home / "errors.txt").read_text()[-2_000:]


def checked(spark: SparkSession, table: Path, expected: list[bytes]) -> None:
    found = entries(spark, table)
    assert len(found) == len(set(found)) == len(expected)
    assert _digest(found) == _digest(expected)


def _digest(values: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(sorted(values))).hexdigest()


@pytest.mark.full
def test_a_driver_killed_in_mid_stream_gives_each_row_once(spark: SparkSession, filled: Filled, tmp_path: Path):
    batches = [[b"%d-%d" % (batch, entry) for entry in range(500)] for batch in range(40)]
    url = filled(*batches)
    drive(url, tmp_path, per_trigger=2_000, kill_behind=3)
    assert 0 < standing(url)[1] < 40
    drive(url, tmp_path, per_trigger=5_000, kill_behind=None)
    checked(spark, tmp_path / "table", flat(batches))
    assert standing(url)[1] == 40


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("conf", [(), ("spark.speculation=true", "spark.task.maxFailures=4", "master=local[2,4]")])
def test_a_million_rows_survive_five_kills(spark: SparkSession, filled: Filled, tmp_path: Path, conf: tuple[str, ...]):
    batches = [[b"%d-%d" % (batch, entry) for entry in range(5_000)] for batch in range(200)]
    url = filled(*batches)
    dice = random.Random(7)
    for _ in range(5):
        drive(url, tmp_path, per_trigger=20_000, kill_behind=dice.randint(1, 6), conf=conf)
    drive(url, tmp_path, per_trigger=100_000, kill_behind=None, conf=conf)
    checked(spark, tmp_path / "table", flat(batches))
    assert standing(url)[1] == 200
