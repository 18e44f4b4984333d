"""Readers of small batches against each other, and typed decode against a plain ``from_json``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, get_args

from bench.events import events
from bench.measure import Row
from bench.processes import cpu_s
from tenure.buffer import BufferSettings, Producer
from tenure.spark.decode import decoded
from tenure.spark.jobs.plan import Limits, Plan, Planned
from tenure.spark.reader.columns import spark_schema
from tenure.spark.reader.reader import RangeReader, ReaderName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Spent", "decoding", "fill_small", "ratio_of", "small_batches"]

SMALL_ENTRIES = 10
FILES_MAX = 8
OF_THE_BEST = 1.2
OF_SPARK = 0.9
DECODED_ENTRIES = 400_000
EVENT = "event string, topic string, ts bigint, runs array<bigint>, node string, lease_id string, deliveries int"


async def fill_small(url: str, batches: int) -> None:
    """A buffer of so many batches, as a flush every 100 ms makes them."""
    entries = list(events(SMALL_ENTRIES))
    async with Producer(url, settings=BufferSettings(flush_interval_ms=1)) as producer:
        for _ in range(batches):
            await producer.produce(entries)
            await producer.flush()


def small_batches(spark: SparkSession, url: str, root: Path, rounds: int) -> list[Row]:
    """A table of everything in the buffer, by each reader in turn, range by range as a job does it."""
    ranges = _ranges(url)
    count = sum(len(planned.descriptors) for planned in ranges)
    readers: tuple[ReaderName, ...] = get_args(ReaderName)
    shortest, files = dict.fromkeys(readers, float("inf")), dict.fromkeys(readers, 0)
    for _ in range(rounds):
        for reader in readers:
            started = time.perf_counter()
            files[reader] = _written(spark, url, root / "small", ranges, reader)
            shortest[reader] = min(shortest[reader], time.perf_counter() - started)
    print(f"  {count:,} batches of {SMALL_ENTRIES} entries into Parquet: ", end="")
    print(", ".join(f"{reader} {shortest[reader]:.2f} s and {files[reader]} files" for reader in readers))
    ratio, what = shortest["auto"] / min(shortest.values()), f"{count:,} small batches, auto"
    return [
        (f"{what}, of the best reader", f"{ratio:.2f} ×", f"≤ {OF_THE_BEST} ×", ratio <= OF_THE_BEST),
        (f"{what}, files", f"{files['auto']}", f"≤ {FILES_MAX}", files["auto"] <= FILES_MAX),
    ]


def _ranges(url: str) -> list[Planned]:
    """The buffer, cut as a job cuts it."""
    with Plan(url, group="bench-small") as plan:
        end, step = plan.end_seq(), Limits().batches_max
        return [plan.between(low, min(low + step - 1, end)) for low in range(0, end + 1, step)]


def _written(spark: SparkSession, url: str, table: Path, ranges: list[Planned], reader: ReaderName) -> int:
    """Write a new table; return the number of its files."""
    shutil.rmtree(table, ignore_errors=True)
    source = RangeReader(spark, url, reader=reader)
    for planned in ranges:
        source.read(planned).write.mode("append").parquet(str(table))
    return len(list(table.glob("*.parquet")))


def decoding(spark: SparkSession, root: Path, rounds: int) -> list[Row]:
    """Entries of a Parquet file as typed columns, thrown away; by Spark's own function without any check."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    raw, schema = _raw(spark, root / "raw"), StructType.fromDDL(EVENT)

    def plain() -> DataFrame:
        parsed = F.from_json(F.col("entry").cast("string"), schema)
        return raw.withColumn("parsed", parsed).select("seq", "index", "ingestion_time", "metadata", "parsed.*")

    for _ in range(3):  # the first of each compile
        _discarded(plain()), _discarded(decoded(raw, schema))
    own, mine = zip(*((_discarded(plain()), _discarded(decoded(raw, schema))) for _ in range(rounds)), strict=True)
    print(f"  {raw.count():,} entries decoded: from_json {_told(own)}, decoded {_told(mine)}")
    return [ratio_of("typed decode, of a plain from_json", own, mine)]


Spent = tuple[float, float]
"""Seconds of CPU time in all processes, and by the clock."""


def ratio_of(what: str, own: Sequence[Spent], mine: Sequence[Spent]) -> Row:
    """How much of the pace of Spark's own way is reached, by medians; the bar is for CPU time, which others disturb
    less.
    """
    by_cpu, by_clock = (_median(own, each) / _median(mine, each) for each in (0, 1))
    return what, f"{by_cpu:.2f} by CPU, {by_clock:.2f} by clock", f"≥ {OF_SPARK}", by_cpu >= OF_SPARK


def _median(spent: Sequence[Spent], each: int) -> float:
    return median(one[each] for one in spent)


def _told(spent: Sequence[Spent]) -> str:
    return f"{_median(spent, 0):.2f} s of CPU in {_median(spent, 1):.2f} s"


def _raw(spark: SparkSession, path: Path) -> DataFrame:
    from datetime import UTC, datetime

    now, few = datetime.now(UTC), DECODED_ENTRIES // 20
    rows = [(0, index, now, b"", entry) for index, entry in enumerate(events(few))]
    once = spark.createDataFrame(rows, spark_schema())
    once.crossJoin(spark.range(20)).drop("id").repartition(2).write.parquet(str(path))
    return spark.read.parquet(str(path))


def _discarded(frame: DataFrame) -> Spent:
    cpu, started = cpu_s(), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return cpu_s() - cpu, time.perf_counter() - started
