"""`make bench-spark`: reading a buffer against Spark's own readers on the same files, in one run on local[2]."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.buffer import entries_of
from bench.measure import Row, best_of, calibrate, report
from bench.spark_reading import decoding, fill_small, small_batches
from bench.spark_report import report_memory
from bench.spark_streaming import streaming
from bench.spark_table import fill_large, into_a_table
from tenure.buffer import BufferSettings, Producer
from tenure.spark.jobs.plan import Limits, Plan, Planned
from tenure.spark.jobs.streaming import FAST_CHECKPOINTS
from tenure.spark.reader.reader import ReaderName, read_range
from tenure.spark.session.session import open_session
from tenure.spark.stream.formats import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTRY_BYTES = 240
ENTRIES = {"quick": 200_000, "full": 1_000_000}
PER_CALL = 1_000
BATCH_BYTES_MAX = 16 << 20
BATCHES_MIN = 12
"""So that a stream of four batches a micro-batch has several micro-batches in the quick size, too."""
RATE_PER_S = 100
SMALL_BATCHES = {"quick": [1_000], "full": [1_000, 10_000]}
SECONDS = {"quick": 15, "full": 30}
WARM_S = 5


async def fill(url: str, count: int) -> None:
    """Fill a buffer with events, in batches of at most 16 MB before compression."""
    entries = entries_of(ENTRY_BYTES, count * ENTRY_BYTES)
    batch_bytes = min(BATCH_BYTES_MAX, count * ENTRY_BYTES // BATCHES_MIN)
    async with Producer(url, settings=BufferSettings(flush_bytes=batch_bytes, flush_interval_ms=1_000)) as producer:
        for first in range(0, len(entries), PER_CALL):
            await producer.produce(entries[first : first + PER_CALL])


def in_turns(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The shortest time of each in seconds, taken in turns so that all meet the same weather."""
    shortest = [float("inf")] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            started = time.perf_counter()
            work()
            shortest[number] = min(shortest[number], time.perf_counter() - started)
    return shortest


# A range, read and thrown away


def reading(spark: SparkSession, url: str, planned: Planned, rounds: int) -> list[Row]:
    paths = [f"{url}/{descriptor.location}" for descriptor in planned.descriptors]

    def plain() -> None:
        discard(spark.read.parquet(*paths))

    def ours(reader: ReaderName) -> Callable[[], None]:
        return lambda: discard(read_range(spark, url, planned, reader=reader))

    in_turns(3, plain, ours("jvm"), ours("python"))  # the first of each compile, as those of a job do
    own, jvm, python = in_turns(rounds, plain, ours("jvm"), ours("python"))
    print(
        f"  {planned.entries:,} entries in {len(planned.descriptors)} batches, {planned.bytes / 1e6:,.0f} MB stored: "
        f"spark.read.parquet {own:.2f} s, read_range by the JVM {jvm:.2f} s, by Python {python:.2f} s"
    )
    return [
        ("a range read by the JVM, of spark.read.parquet", f"{own / jvm:.2f}", "≥ 0.8", own / jvm >= 0.8),
        ("a range read by Python, of spark.read.parquet", f"{own / python:.2f}", "≥ 0.5", own / python >= 0.5),
    ]


def discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


# From produce to the sink


async def trickle(url: str, until: threading.Event) -> None:
    """A hundred entries a second, each with the time at which it was produced."""
    async with Producer(url) as producer:
        start, sent = time.monotonic(), 0
        while not until.is_set():
            await producer.produce([repr(time.time()).encode()])
            sent += 1
            await asyncio.sleep(max(0.0, start + sent / RATE_PER_S - time.monotonic()))


def latencies_s(spark: SparkSession, url: str, out: Path, seconds: int) -> list[float]:
    """How old each entry is once its micro-batch is in a Parquet table, without the first seconds."""
    took: list[float] = []
    began = time.time()

    def write(rows: DataFrame, _: int) -> None:
        kept = rows.persist()
        kept.write.mode("append").parquet(f"{out}/table")
        now = time.time()
        stamps = [float(bytes(row.entry)) for row in kept.select("entry").collect()]
        took.extend(now - stamp for stamp in stamps if stamp > began + WARM_S)
        kept.unpersist()

    stop = threading.Event()
    producing = threading.Thread(target=lambda: asyncio.run(trickle(url, stop)))
    producing.start()
    while not (Path(url.removeprefix("file://")) / "buffer.json").exists():
        time.sleep(0.01)
    stream = spark.readStream.format("tenure-buffer").load(url)
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{out}/checkpoint").start()
    began = time.time()
    query.awaitTermination(seconds + WARM_S)
    stop.set()
    producing.join()
    query.stop()
    return sorted(took)


def latency(spark: SparkSession, root: Path, seconds: int) -> list[Row]:
    rows: list[Row] = []
    for name, conf in (("as Spark comes", {}), ("with FAST_CHECKPOINTS", FAST_CHECKPOINTS)):
        for key, value in conf.items():
            spark.conf.set(key, value)
        home = root / f"latency-{len(conf)}"
        took = latencies_s(spark, f"file://{home}/buffer", home, seconds)
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        print(f"  produce → in the sink at {RATE_PER_S} entries/s, {name}: p50 {p50:.2f} s, p99 {p99:.2f} s")
        rows.append((f"produce → in the sink, {name}, p50", f"{p50:.2f} s", "≤ 1 s", p50 <= 1))
        for key in conf:
            spark.conf.unset(key)
    return rows


# The yardsticks


def calibration(spark: SparkSession) -> None:
    discard(spark.range(1))
    rows = best_of(3, lambda: discard(spark.range(20_000_000)))
    block = b"x" * (64 << 20)
    hashing = best_of(3, lambda: hashlib.sha256(block).digest())
    print(
        f"calibration: {calibrate() / 1e6:.1f} M loop turns/s, sha256 {64 / hashing:,.0f} MiB/s, "
        f"spark.range to noop {20 / rows:,.0f} M rows/s"
    )


def measured(spark: SparkSession, root: Path, *, kind: str, rounds: int, only: set[str]) -> list[Row]:
    url, count = f"file://{root}/buffer", ENTRIES[kind]
    rows: list[Row] = []
    if only & {"read", "stream"}:
        asyncio.run(fill(url, count))
        with Plan(url, limits=Limits(entries_max=count, bytes_max=1 << 40)) as plan:
            planned = plan.between(0, plan.end_seq())
        if "read" in only:
            rows += reading(spark, url, planned, rounds)
        if "stream" in only:
            rows += streaming(spark, url, root, planned, rounds)
    if "small" in only:
        for batches in SMALL_BATCHES[kind]:
            small = f"file://{root}/small-{batches}"
            asyncio.run(fill_small(small, batches))
            rows += small_batches(spark, small, root, rounds)
    if "table" in only:
        large = f"file://{root}/large"
        asyncio.run(fill_large(large, count))
        rows += into_a_table(spark, large, root, rounds)
    if "decode" in only:
        rows += decoding(spark, root, rounds)
    if "latency" in only:
        rows += latency(spark, root, SECONDS[kind])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer entries, fewer rounds")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="some of the parts")
    given: Any = parser.parse_args()
    kind, only = "quick" if given.quick else "full", set(given.only)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as home:
        root = Path(home)
        rows: list[Row] = []
        if only != {"report"}:
            spark = open_session("bench", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
            register(spark)
            calibration(spark)
            rows += measured(spark, root, kind=kind, rounds=3 if given.quick else 5, only=only)
            spark.stop()
        if "report" in only:
            rows += report_memory(root, quick=given.quick)
    report("Spark on local[2]", rows)
    return 0 if all(row[3] for row in rows) else 1


PARTS = ["read", "small", "table", "decode", "stream", "latency", "report"]

if __name__ == "__main__":
    sys.exit(main())
