"""A buffer of large entries into a file table, against a plain copy of the same files by Spark, by processor time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import Row
from bench.processes import cpu_s
from tenure.buffer import BufferSettings, Producer
from tenure.spark.jobs.ingest import ingest
from tenure.spark.jobs.plan import Limits, Plan
from tenure.spark.sinks.files.table import FileTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["fill_large", "into_a_table"]

ENTRY_BYTES = 1_000
PER_CALL = 1_000
BATCH_BYTES = 16 << 20
OF_A_COPY = 0.9


async def fill_large(url: str, count: int) -> None:
    """A buffer of so many entries of 1 kB, made as they are produced."""
    from bench.buffer import entries_of

    async with Producer(url, settings=BufferSettings(flush_bytes=BATCH_BYTES, flush_interval_ms=1_000)) as producer:
        for _ in range(count // PER_CALL):
            await producer.produce(entries_of(ENTRY_BYTES, PER_CALL * ENTRY_BYTES))


def into_a_table(spark: SparkSession, url: str, root: Path, rounds: int) -> list[Row]:
    """Everything in one range: read, written and committed by a job, and read and written by Spark alone."""
    with Plan(url, group="bench-copy") as plan:
        found = plan.between(0, plan.end_seq())
    paths = [f"{url}/{descriptor.location}" for descriptor in found.descriptors]
    table, turns = root / "copied", iter(range(1_000))

    def copy() -> None:
        spark.read.parquet(*paths).write.option("compression", "zstd").parquet(str(table))

    def job() -> None:
        limits = Limits(entries_max=found.entries, bytes_max=1 << 40, batches_max=len(paths))
        done = ingest(spark, url, FileTable(table), group=f"bench-table-{next(turns)}", limits=limits)
        assert (done.ranges, done.entries) == (1, found.entries)

    own, mine = float("inf"), float("inf")
    for _ in range(rounds + 1):  # the first of each compiles
        own = min(own, _cpu_of(copy, table))
        mine = min(mine, _cpu_of(job, table))
    print(
        f"  {found.entries:,} entries of {ENTRY_BYTES:,} bytes in {len(paths)} batches, {found.bytes / 1e6:,.0f} MB: "
        f"a copy by Spark {own:.1f} s of processor, a job into a file table {mine:.1f} s"
    )
    what = f"{found.entries:,} × 1 kB into a file table, by processor, of spark.read.parquet(…).write"
    return [(what, f"{own / mine:.2f}", f"≥ {OF_A_COPY}", own / mine >= OF_A_COPY)]


def _cpu_of(work: Callable[[], None], table: Path) -> float:
    """Processor seconds of this process, its JVM and its Python workers for a table that was not there."""
    shutil.rmtree(table, ignore_errors=True)
    before = cpu_s()
    work()
    return cpu_s() - before
