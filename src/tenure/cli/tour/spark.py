"""The last part of the tour: the events of a queue go through Spark into a table and a report."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tenure.cli.screen import table
from tenure.cli.tour.checks import expect
from tenure.cli.tour.crowd import JOBS, POISON, QUEUE, work_as_a_crowd
from tenure.cli.words import count
from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["events_into_a_table"]

_Steps = list[tuple[str, str]]

_PIPELINE = """\
# Made by the tour: the lifecycle events of its queue, as a table. Run it again: it adds nothing.
[pipeline]
name = "tour"

[source]
buffer = "events"
group = "table"
retain_for = "7d"  # the report reads the buffer too, and backfills could

[decode]
format = "json"
schema = "events.schema.toml"

[[expect]]
name = "has-topic"
that = "topic IS NOT NULL"
otherwise = "fail"

[sink]
kind = "parquet"
path = "table"
partition_by = ["event"]

[schedule]
run = "once"
"""
_SCHEMA = """\
[fields]
event = "string"
topic = "string"
ts = "long"
runs = ["long"]
node = "string"
lease_id = "string"
deliveries = "long"
reason = "string"
"""


def events_into_a_table(console: Console, data: Path, out: Path) -> None:
    """Run the crowd, export its events, and check the table and the report that Spark makes. Raises Invalid
    (``tour_out``) for a directory that is not the tour's.
    """
    _make_room(out)
    asyncio.run(work_as_a_crowd(data))
    exported = asyncio.run(_export(data, (out / "events").as_uri()))
    console.print(
        f"Three workers took {count(JOBS, 'job')} from a queue. One is forgetful, and {len(POISON)} jobs are poison. "
        f"Everything that happened is in a buffer now, {count(exported, 'event')}:\n"
    )
    started_s = time.monotonic()
    spark = _session()
    try:
        steps = [("start Spark", f"version {spark.version}, on this machine, in {time.monotonic() - started_s:.0f} s")]
        steps += _pipeline(spark, out, exported)
        steps += _report(spark, out)
    finally:
        spark.stop()
    table(console, ("command", "what happened"), steps)
    console.print(f"Look at   {out / 'report' / 'report.html'}", soft_wrap=True)
    console.print(f"Run again tenure pipeline run {out / 'pipeline.toml'}\n", soft_wrap=True)


def _make_room(out: Path) -> None:
    """Make the directory with the pipeline in it; the files of an earlier tour are removed."""
    if out.exists() and not (out / "pipeline.toml").exists() and (not out.is_dir() or any(out.iterdir())):
        raise Invalid(f"{out} holds something that is not the tour's: name another directory", code="tour_out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "pipeline.toml").write_text(_PIPELINE)
    (out / "events.schema.toml").write_text(_SCHEMA)


async def _export(data: Path, url: str) -> int:
    """Send the log's events into a buffer, as `tenure export --once` does; returns how many."""
    from tenure.export.buffer_outlet import BufferOutlet, producer_name
    from tenure.export.exporter import Exporter
    from tenure.export.settings import ExportSettings
    from tenure.log.disk import PosixDisk

    stop = asyncio.Event()
    stop.set()
    async with BufferOutlet(url, producer_name(PosixDisk(data, create=False))) as outlet:
        exporter = Exporter(data, outlet, settings=ExportSettings())
        try:
            await exporter.run(stop)
        finally:
            exporter.close()
        return exporter.progress.rows


def _session() -> SparkSession:
    from tenure.spark.session.session import open_session

    return open_session("tenure tour", master="local[2]")


def _pipeline(spark: SparkSession, out: Path, exported: int) -> _Steps:
    """Run the pipeline twice, and check the counts."""
    from tenure.spark.pipeline.file.parse import read_pipeline
    from tenure.spark.pipeline.runner.runner import RunOptions, run_pipeline

    pipeline = read_pipeline(out / "pipeline.toml")
    run = run_pipeline(pipeline, RunOptions(), spark=spark)
    again = run_pipeline(pipeline, RunOptions(), spark=spark)
    rows = spark.read.parquet(str(out / "table"))
    expect(rows.count() == exported, "every event is a row of the table, once")
    expect((run.ranges, again.ranges) == (1, 0), "a second run finds nothing to do")
    kinds = rows.where(f"topic = '{QUEUE}'").groupBy("event").count().collect()
    acked = next(kind["count"] for kind in kinds if kind["event"] == "acked")
    return [
        ("tenure pipeline run", f"{count(exported, 'row')} in a Parquet table, {acked:,} of them acks"),
        ("… a second time", "nothing to do: the table itself knows how far it is"),
    ]


def _report(spark: SparkSession, out: Path) -> _Steps:
    """Make the report, and check it against what the crowd did."""
    from tenure.spark.report.events import find_events
    from tenure.spark.report.job import make_report

    figures = make_report(spark, find_events((out / "events").as_uri()), out / "report")
    orders = next(row for row in figures.queues if row.queue == QUEUE)
    expect(orders.produced == JOBS, "the report knows every job")
    expect(orders.acked + orders.dead_lettered == JOBS, "each was completed, or is a dead letter")
    expect(orders.dead_lettered >= len(POISON), "the poison is among the dead letters")
    figures_text = (
        f"{count(orders.acked, 'job')} done, {orders.dead_lettered} dead, {orders.returned} deliveries came back"
    )
    return [("tenure report", figures_text)]
