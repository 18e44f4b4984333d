"""From the buffer into a table by Spark: the same rows by both readers, once, and every fault by its name."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tenure.buffer import Consumer, Descriptor, Producer, entries, quarantine, stat
from tenure.errors import Conflict, Corrupt, Indeterminate, Invalid, LeaseLost
from tenure.spark.jobs.backfill import backfill
from tenure.spark.jobs.ingest import Done, follow, ingest
from tenure.spark.jobs.plan import Limits, Plan
from tenure.spark.jobs.retrying import Waiting
from tenure.spark.reader.columns import RAW, spark_schema
from tenure.spark.reader.reader import RangeReader, ReaderName, read_range
from tenure.spark.reader.settings import ReaderSettings
from tests.kit.buffers import QUICK, quick
from tests.spark.conftest import Filled
from tests.spark.folder_sink import FolderSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONF = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}
pytestmark = pytest.mark.timeout(300)
READERS: tuple[ReaderName, ...] = ("jvm", "python")
FAST = ReaderSettings(buffer=QUICK)
KEEPING = ReaderSettings(buffer=quick(retain_for_ms=3_600_000))
LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
Rows = list[dict[str, Any]]


@pytest.fixture
def sink(tmp_path: Path) -> FolderSink:
    (tmp_path / "table").mkdir()
    return FolderSink(tmp_path / "table")


async def filled_by_calls(url: str) -> None:
    """Three batches; the calls within them differ in size, time and metadata."""
    settings = quick(flush_interval_ms=60_000)
    async with Producer(url, settings=settings) as producer:
        for calls in (
            [([b"one", b""], b""), ([b"two"], b"from the till"), ([b"\x00\xff" * 9, b""], b"")],
            [([b""], b"\x00")],
            [([b"%d" % number for number in range(500)], b"many"), ([b"last"], b"")],
        ):
            for given, metadata in calls:
                await producer.produce(given, metadata)
                await asyncio.sleep(0.002)  # another millisecond, so that the calls' times differ
            await producer.flush()


async def consumed(url: str) -> Rows:
    """What a plain consumer says the rows are."""
    rows: Rows = []
    async with Consumer(url, group="plain", settings=QUICK, collect=False) as consumer:
        while (batch := await consumer.next_batch()) is not None:
            for index, entry in enumerate(batch.entries):
                call = batch.range_of(index)
                at = datetime.fromtimestamp(call.ingested_ms / 1000, UTC)
                rows.append(
                    {"seq": batch.seq, "index": index, "ingestion_time": at, "metadata": call.metadata, "entry": entry}
                )
    return rows


def collected(frame: DataFrame) -> Rows:
    rows: Rows = []
    for row in frame.collect():
        plain = row.asDict()
        plain["ingestion_time"] = plain["ingestion_time"].astimezone(UTC)
        rows.append({name: bytes(value) if isinstance(value, bytearray) else value for name, value in plain.items()})
    return sorted(rows, key=lambda row: (row["seq"], row["index"]))


def described(url: str) -> list[Descriptor]:
    async def read() -> list[Descriptor]:
        return [descriptor async for descriptor in entries(url)]

    return asyncio.run(read())


def file_of(url: str, seq: int) -> Path:
    return Path(url.removeprefix("file://")) / described(url)[seq].location


def frontier(url: str) -> int | None:
    groups = asyncio.run(stat(url)).groups
    return groups[0].last_acked if groups else None


def plan_text(frame: DataFrame) -> str:
    """What Spark is going to do for a frame."""
    text: str = frame._jdf.queryExecution().toString()
    return text


def tasks_of(spark: SparkSession, group: str) -> list[int]:
    """The tasks of each stage that a group of jobs had so far."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return [stage.numTasks for stage in stages if stage is not None]


# Reading


def test_both_readers_give_the_rows_that_a_consumer_gives(spark: SparkSession, tmp_path: Path):
    url = (tmp_path / "a buffer, with 100% of odd letters").as_uri()
    asyncio.run(filled_by_calls(url))
    expected = asyncio.run(consumed(url))
    assert len(expected) == 507
    assert len({row["ingestion_time"] for row in expected}) > 3
    with Plan(url, settings=QUICK) as plan:
        planned = plan.next()
    assert planned is not None
    for reader in READERS:
        frame = read_range(spark, url, planned, reader=reader)
        assert tuple(frame.columns) == RAW
        assert [field.dataType for field in frame.schema] == [field.dataType for field in spark_schema()]
        assert collected(frame) == expected


def test_batches_of_one_size_are_told_apart(spark: SparkSession, filled: Filled):
    url = filled(*([b"%d" % number] for number in range(5)))
    with Plan(url, settings=QUICK) as plan:
        planned = plan.next()
    assert planned is not None
    assert len({descriptor.bytes for descriptor in planned.descriptors}) < 5, "the sizes tell them apart by themselves"
    frame = read_range(spark, url, planned, reader="jvm")
    assert [(row["seq"], row["entry"]) for row in collected(frame)] == [(number, b"%d" % number) for number in range(5)]


def test_python_takes_what_the_jvm_cannot_name_and_ranges_with_too_many_calls(spark: SparkSession, tmp_path: Path):
    url = (tmp_path / "a {b} c").as_uri()
    asyncio.run(filled_by_calls(url))
    with Plan(url, settings=QUICK) as plan:
        planned = plan.next()
    assert planned is not None
    assert len(collected(read_range(spark, url, planned))) == 507
    with pytest.raises(Invalid, match="no name"):
        RangeReader(spark, url, reader="jvm")
    few = ReaderSettings(calls_bytes_max=1_000)
    plain = (tmp_path / "plain").as_uri()
    (tmp_path / "a {b} c").rename(tmp_path / "plain")
    assert len(collected(read_range(spark, plain, planned, settings=few))) == 507
    with pytest.raises(Invalid) as caught:
        read_range(spark, plain, planned, reader="jvm", settings=few)
    assert caught.value.code == "calls_too_large"


def test_small_batches_are_read_by_python_unless_told_otherwise(spark: SparkSession, filled: Filled):
    url = filled(*([b"%d" % number] for number in range(3)))
    with Plan(url, settings=QUICK) as plan:
        planned = plan.next()
    assert planned is not None
    assert "MapInArrow" in plan_text(read_range(spark, url, planned))
    small = ReaderSettings(jvm_batch_bytes_min=1)
    for frame in (read_range(spark, url, planned, reader="jvm"), read_range(spark, url, planned, settings=small)):
        assert "MapInArrow" not in plan_text(frame)


def test_the_jvm_lists_and_reads_many_small_batches_in_few_tasks(spark: SparkSession, filled: Filled):
    url = filled(*([b"%d" % number] for number in range(40)))  # Spark lists more than 32 paths in a job
    with Plan(url, settings=QUICK) as plan:
        planned = plan.next()
    assert planned is not None
    before = spark.conf.get(LISTING, None)
    spark.sparkContext.setJobGroup("listing", "of this test")
    frame = RangeReader(spark, url, reader="jvm", parts=2).read(planned)
    assert tasks_of(spark, "listing") == [2]
    assert spark.conf.get(LISTING, None) == before
    assert frame.rdd.getNumPartitions() == 2
    assert [row["entry"] for row in collected(frame)] == [b"%d" % number for number in range(40)]


def test_a_reader_that_is_none_and_a_store_of_one_process_are_refused(spark: SparkSession):
    with pytest.raises(Invalid, match="auto, jvm or python"):
        RangeReader(spark, "file:///nowhere", reader="rust")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="one process"):
        RangeReader(spark, "memory://here")


# Moving


def test_ranges_arrive_one_behind_the_other_and_are_acknowledged(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled(*([b"%d" % number] * 3 for number in range(5)))
    told: list[Done] = []
    summary = ingest(spark, url, sink, limits=Limits(batches_max=2), settings=FAST, on_range=told.append)
    assert sink.ranges() == [(0, 1), (2, 3), (4, 4)]
    assert [row["entry"] for row in sink.rows()] == [b"%d" % number for number in range(5) for _ in range(3)]
    assert (summary.ranges, summary.batches, summary.entries, summary.low, summary.high) == (3, 5, 15, 0, 4)
    assert [(done.planned.high, done.lag and done.lag.batches, done.summary.entries) for done in told] == [
        (1, 3, 6),
        (3, 1, 12),
        (4, 0, 15),
    ]
    assert frontier(url) == 4
    again = ingest(spark, url, sink, settings=FAST)
    assert (again.ranges, again.low, again.high) == (0, None, None)


def test_a_transform_stands_between_reader_and_sink(spark: SparkSession, filled: Filled, sink: FolderSink):
    from pyspark.sql import functions as F  # noqa: N812

    url = filled([b"a", b"b"])
    ingest(spark, url, sink, settings=FAST, transform=lambda frame: frame.where(F.col("entry") == F.lit(b"b")))
    assert [(row["index"], row["entry"]) for row in sink.rows()] == [(1, b"b")]


def test_following_takes_what_comes_until_it_is_told_to_stop(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled([b"0"])
    stop = threading.Event()

    def more(done: Done) -> None:
        if done.planned.high < 2:
            filled([b"more"], url=url)
        else:
            stop.set()

    summary = follow(spark, url, sink, stop=stop, poll_ms=5, settings=FAST, on_range=more)
    assert (summary.ranges, summary.high) == (3, 2)
    assert [row["entry"] for row in sink.rows()] == [b"0", b"more", b"more"]
    with pytest.raises(Invalid, match="poll_ms"):
        follow(spark, url, sink, stop=stop, poll_ms=0)


def test_an_answer_that_was_lost_is_asked_for_once(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled([b"0"], [b"1"], [b"2"])
    sink.answers = ["lost", "", "failed"]
    with pytest.raises(Indeterminate, match=r"^as told$"):
        ingest(spark, url, sink, limits=Limits(batches_max=1), settings=FAST, retry_ms=0)
    assert (sink.ranges(), frontier(url)) == ([(0, 0), (1, 1)], 1)
    ingest(spark, url, sink, settings=FAST)
    assert ([row["entry"] for row in sink.rows()], frontier(url)) == ([b"0", b"1", b"2"], 2)


@pytest.mark.full
def test_what_the_table_refuses_for_now_is_written_a_little_later(
    spark: SparkSession, filled: Filled, sink: FolderSink
):
    url = filled([b"0"], [b"1"])
    sink.answers = ["busy", "failed", "", "busy"]
    waits: list[Waiting | None] = []
    summary = ingest(spark, url, sink, limits=Limits(batches_max=1), settings=FAST, on_wait=waits.append)
    assert (summary.ranges, sink.ranges(), frontier(url)) == (2, [(0, 0), (1, 1)], 1)
    assert [each and (each.error.code, each.attempts) for each in waits] == [
        ("table_busy", 1),
        ("indeterminate", 2),
        None,
        ("table_busy", 1),
        None,
    ]
    assert backfill(spark, filled([b"0"]), FolderSink(sink.root.parent, "busy"), 0, 0, settings=KEEPING).ranges == 1


def test_a_job_that_follows_waits_for_its_table_until_it_is_told_to_stop(
    spark: SparkSession, filled: Filled, sink: FolderSink
):
    url = filled([b"0"])
    sink.answers = ["busy"] * 100
    stop = threading.Event()
    summary = follow(
        spark,
        url,
        sink,
        stop=stop,
        settings=FAST,
        on_wait=lambda each: stop.set() if each and each.attempts == 2 else None,
    )
    assert (summary.ranges, len(sink.commits), frontier(url)) == (0, 2, None)
    sink.answers = []
    assert ingest(spark, url, sink, settings=FAST).ranges == 1


def test_a_second_job_on_the_same_group_is_fenced(spark: SparkSession, filled: Filled, sink: FolderSink):
    """The second one takes the range that the first has begun, under the same identity; neither is doubled."""
    url = filled([b"0"], [b"1"], [b"2"])

    def overtaken(frame: DataFrame) -> DataFrame:
        ingest(spark, url, sink, limits=Limits(batches_max=3), settings=FAST)
        return frame

    with pytest.raises(LeaseLost, match="a second job on the same group") as caught:
        ingest(spark, url, sink, limits=Limits(batches_max=2), settings=FAST, transform=overtaken)
    assert caught.value.code == "fenced"
    assert sink.ranges() == [(0, 1), (2, 2)]
    assert [row["entry"] for row in sink.rows()] == [b"0", b"1", b"2"]


# Faults


@pytest.mark.full
@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_batch_is_named(spark: SparkSession, filled: Filled, sink: FolderSink, reader: ReaderName):
    url = filled([b"0"], [b"%d" % number for number in range(1_000)], [b"2"])
    path = file_of(url, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)
    for answer in ("", "doubtful"):
        sink.answers = [answer]
        with pytest.raises(Corrupt, match="batch 1 ") as caught:
            ingest(spark, url, sink, reader=reader, settings=FAST)
        assert (caught.value.code, caught.value.detail["seq"]) == ("batch_damaged", 1)
    assert (sink.ranges(), frontier(url)) == ([], None)
    asyncio.run(quarantine(url, 1, reason="flipped bits"))
    ingest(spark, url, sink, reader=reader, settings=FAST)
    assert (sink.ranges(), [row["entry"] for row in sink.rows()]) == ([(0, 2)], [b"0", b"2"])


def test_a_range_of_batches_that_were_all_given_up_is_an_empty_commit(
    spark: SparkSession, filled: Filled, sink: FolderSink
):
    url = filled([b"0"], [b"1"])
    for seq in (1, 0):
        asyncio.run(quarantine(url, seq, reason="both"))
    filled([b"2"], url=url)
    ingest(spark, url, sink, limits=Limits(batches_max=1), settings=FAST)
    assert (sink.ranges(), [row["entry"] for row in sink.rows()]) == ([(0, 0), (1, 1), (2, 2)], [b"2"])


@pytest.mark.full
def test_a_job_goes_on_after_every_batch_of_the_range_it_stopped_at_was_given_up(
    spark: SparkSession, filled: Filled, sink: FolderSink
):
    """The usual case for a job that keeps up: its range is the one batch that is bad."""
    url = filled([b"0"])
    ingest(spark, url, sink, settings=FAST)
    filled([b"1"], url=url)
    file_of(url, 1).unlink()
    with pytest.raises(Corrupt):
        ingest(spark, url, sink, settings=FAST)
    asyncio.run(quarantine(url, 1, reason="gone"))
    filled([b"2"], [b"3"], url=url)
    ingest(spark, url, sink, settings=FAST)
    assert (sink.ranges(), [row["entry"] for row in sink.rows()]) == ([(0, 0), (1, 1), (2, 3)], [b"0", b"2", b"3"])


@pytest.mark.parametrize("reader", READERS)
def test_a_batch_that_is_missing_is_named_also_if_it_goes_while_the_job_runs(
    spark: SparkSession, filled: Filled, sink: FolderSink, reader: ReaderName
):
    url = filled([b"0"], [b"1"], [b"2"])
    path = file_of(url, 2)

    def goes(frame: DataFrame) -> DataFrame:
        path.unlink(missing_ok=True)
        return frame

    for _ in ("while it runs", "before it starts"):
        with pytest.raises(Corrupt, match=r"batch 2 .* is gone") as caught:
            ingest(spark, url, sink, reader=reader, settings=FAST, transform=goes)
        assert (caught.value.code, sink.ranges()) == ("batch_missing", [])


def test_a_truncated_batch_is_never_taken_for_less_data(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled([b"0"], [b"1" * 100] * 100)
    path = file_of(url, 1)
    path.write_bytes(path.read_bytes()[:-9])
    for reader in ("auto", *READERS):
        with pytest.raises(Corrupt, match="batch 1 "):
            ingest(spark, url, sink, reader=reader, settings=FAST)
    assert sink.ranges() == []


def test_an_error_that_is_no_batchs_stays_what_it_is(spark: SparkSession, filled: Filled, sink: FolderSink):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException):
        ingest(spark, filled([b"0"]), sink, settings=FAST, transform=lambda frame: frame.select("no_such_column"))


# Replaying


def test_a_replayed_hour_adds_nothing(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled([b"0"], [b"1"], [b"2"])
    ingest(spark, url, sink, settings=KEEPING)
    before = sink.rows()
    now = datetime.now(UTC)
    summary = backfill(spark, url, sink, (now - timedelta(hours=1)).isoformat(), now.isoformat(), settings=KEEPING)
    assert (summary.ranges, summary.entries, summary.passed_over) == (0, 0, 3)
    assert sink.rows() == before


def test_a_replay_fills_a_new_table_and_only_the_rest_of_an_old_one(
    spark: SparkSession, filled: Filled, sink: FolderSink, tmp_path: Path
):
    url = filled(*([b"%d" % number] for number in range(5)))
    new = FolderSink(tmp_path)
    summary = backfill(spark, url, new, 1, 3, limits=Limits(batches_max=2), settings=KEEPING)
    assert (new.ranges(), summary.batches, summary.passed_over) == ([(1, 2), (3, 3)], 3, 0)
    summary = backfill(spark, url, new, 2, 4, settings=KEEPING)
    assert (new.ranges()[2:], summary.batches, summary.passed_over) == ([(4, 4)], 1, 2)
    assert [row["entry"] for row in new.rows()] == [b"1", b"2", b"3", b"4"]
    assert frontier(url) is None
    sink.write(spark.range(1).selectExpr("id seq", "id index"), new.commits[0])
    with pytest.raises(Conflict, match="new table") as caught:
        backfill(spark, url, sink, 4, 4, settings=KEEPING)
    assert caught.value.code == "sink_moved"


def test_a_replay_gets_past_a_batch_that_is_gone_once_it_is_given_up(
    spark: SparkSession, filled: Filled, sink: FolderSink
):
    url = filled(*([b"%d" % number] for number in range(5)))
    ingest(spark, url, sink, settings=KEEPING)
    file_of(url, 2).unlink()
    copy = FolderSink(sink.root.parent)
    backfill(spark, url, copy, 0, 1, settings=KEEPING)
    with pytest.raises(Corrupt):
        backfill(spark, url, copy, 0, 4, settings=KEEPING)
    with pytest.raises(Conflict):
        backfill(spark, url, copy, 3, 4, settings=KEEPING)
    asyncio.run(quarantine(url, 2, reason="gone"))
    summary = backfill(spark, url, copy, 3, 3, settings=KEEPING)
    assert (summary.batches, summary.passed_over) == (1, 0)
    backfill(spark, url, copy, 0, 4, settings=KEEPING)
    assert copy.ranges() == [(0, 1), (2, 3), (4, 4)]
    assert [row["entry"] for row in copy.rows()] == [b"0", b"1", b"3", b"4"]


def test_an_end_that_is_none_or_not_kept_is_refused(spark: SparkSession, filled: Filled, sink: FolderSink):
    url = filled([b"0"], [b"1"])
    gone: list[tuple[int | str, int | str]] = [(0, 2), (5, 6), (0, "7")]
    for first, last in gone:
        with pytest.raises(Invalid) as caught:
            backfill(spark, url, sink, first, last, settings=FAST)
        assert caught.value.code == "range_gone"
    none: list[tuple[int | str, int | str]] = [(1, 0), (-1, 0), (0, "tomorrow"), ("2026-01-02", "2026-01-01")]
    for first, last in none:
        with pytest.raises(Invalid):
            backfill(spark, url, sink, first, last, settings=FAST)
    assert backfill(spark, url, sink, "2001-01-01", "2001-01-02T00:00:00Z", settings=FAST).ranges == 0
    assert sink.ranges() == []
