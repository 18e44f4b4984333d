"""`make bench-scale`: ten million entries in a hundred thousand batches, produced, read through by Spark, collected.

Prints what each step takes: seconds, memory at its peak, files. Every entry must be in the table once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Row, calibrate, report
from bench.processes import Peak
from tenure.buffer import BufferSettings, Collector, Producer, stat
from tenure.spark.jobs.ingest import ingest
from tenure.spark.session.session import open_session
from tenure.spark.sinks.files.table import FileTable, files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENTRY_BYTES = 100
BATCHES = {"quick": 2_000, "full": 100_000}
PER_BATCH = 100
CALLS_AHEAD = 2_000
"""Calls that are under way before one is waited for."""
PRODUCER_MB_MAX = 500
SPARK_MB_MAX = 3_000
FILES_PER_RANGE_MAX = 8


@contextmanager
def measured(what: str) -> Iterator[Peak]:
    started = time.perf_counter()
    with Peak(os.getpid()) as peak:
        yield peak
    print(f"  {what}: {time.perf_counter() - started:,.1f} s, peak {peak.mb:,.0f} MB", flush=True)


async def fill(url: str, batches: int) -> None:
    """Each call is a batch: it has as many bytes as a flush waits for."""
    call_bytes = ENTRY_BYTES * PER_BATCH
    async with Producer(url, settings=BufferSettings(flush_bytes=call_bytes)) as producer:
        for number in range(batches):
            first = number * PER_BATCH
            entries = [b"%0*d" % (ENTRY_BYTES, first + index) for index in range(PER_BATCH)]
            await producer.produce(entries)
            if number % CALLS_AHEAD == CALLS_AHEAD - 1:
                await producer.flush()


def stored_files(home: Path) -> dict[str, int]:
    """How many files the buffer has, by directory."""
    return {each.name: len(list(each.iterdir())) for each in sorted(home.iterdir()) if each.is_dir()}


def whole(spark: SparkSession, table: Path, batches: int) -> bool:
    """Whether the table has every entry of every batch once, by number and by content."""
    rows = spark.read.parquet(str(table))
    per_batch = rows.groupBy("seq").agg({"index": "max", "*": "count"}).toDF("seq", "last", "n")
    found = per_batch.selectExpr("count(*)", "min(n)", "max(n)", "max(last)").collect()[0]
    total = rows.selectExpr("sum(CAST(CAST(entry AS STRING) AS BIGINT))", "count(DISTINCT entry)").collect()[0]
    count = batches * PER_BATCH
    expected = (batches, PER_BATCH, PER_BATCH, PER_BATCH - 1)
    return tuple(found) == expected and tuple(total) == (count * (count - 1) // 2, count)


async def collect(url: str) -> int:
    """Delete everything, as all of it is acknowledged; return how many batches that were."""
    collector, objects = Collector(url, settings=BufferSettings(grace_ms=0)), 0
    while (done := await collector.run_once()).objects:
        objects += done.objects
    await collector.close()
    return objects


def run(root: Path, batches: int) -> list[Row]:
    home, table = root / "buffer", root / "table"
    url, count = home.as_uri(), batches * PER_BATCH
    with measured(f"{count:,} entries produced in {batches:,} batches") as producing:
        asyncio.run(fill(url, batches))
    print(f"  files of the buffer: {stored_files(home)}")
    with measured("opened, and its figures") as opening:
        figures = asyncio.run(stat(url))
    rows: list[Row] = [
        ("batches and entries", f"{figures.batches:,} / {figures.entries_total:,}", "all", figures.batches == batches),
        (
            "memory while producing",
            f"{producing.mb:,.0f} MB",
            f"≤ {PRODUCER_MB_MAX} MB",
            producing.mb < PRODUCER_MB_MAX,
        ),
        ("memory while opening", f"{opening.mb:,.0f} MB", f"≤ {PRODUCER_MB_MAX} MB", opening.mb < PRODUCER_MB_MAX),
    ]
    spark = open_session("bench-scale", master="local[2]", conf={"spark.driver.memory": "2g"})
    with measured("read through by Spark into a file table") as reading:
        done = ingest(spark, url, FileTable(table))
    stored = len(files(table))
    print(f"  {done.ranges} ranges, {stored} files")
    rows += [
        (
            "memory of driver, JVM and workers",
            f"{reading.mb:,.0f} MB",
            f"≤ {SPARK_MB_MAX} MB",
            reading.mb < SPARK_MB_MAX,
        ),
        (
            "files per range",
            f"{stored / done.ranges:.1f}",
            f"≤ {FILES_PER_RANGE_MAX}",
            stored <= FILES_PER_RANGE_MAX * done.ranges,
        ),
        ("every entry in the table once", f"{done.entries:,}", "all", whole(spark, table, batches)),
    ]
    with measured("run again, with nothing to do"):
        again = ingest(spark, url, FileTable(table)).entries
    rows.append(("entries of a second run", f"{again}", "0", again == 0))
    spark.stop()
    with measured("collected, beside a JVM that is idle"):
        removed = asyncio.run(collect(url))
    left = stored_files(home)["data"]
    print(f"  files of the buffer: {stored_files(home)}")
    rows.append(("batches collected, and left", f"{removed:,} / {left}", "all / 0", (removed, left) == (batches, 0)))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer batches")
    batches = BATCHES["quick" if parser.parse_args().quick else "full"]
    print(f"calibration: {calibrate() / 1e6:.1f} M loop turns/s")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as home:
        rows = run(Path(home), batches)
    report(f"{batches:,} batches", rows)
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
