"""Streaming a buffer into Parquet, against Spark's file source on the same files."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Row
from bench.processes import cpu_s
from bench.spark_reading import Spent, ratio_of
from tenure.spark.jobs.plan import Planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["streaming"]

SAMPLE_S = 0.05
"""Between two samples: each reads the state of every thread of the JVM, and is itself part of what is measured."""


def streaming(spark: SparkSession, url: str, root: Path, planned: Planned, rounds: int) -> list[Row]:
    """What a micro-batch costs a stream that runs: those behind the first, each of so many of the buffer's batches.

    All write the entries and nothing else. Spark's source reads one column for that, by itself; ``tenure-buffer`` reads
    one where its schema says so, and else all five.
    """
    queries = _Queries(spark, url, root, planned)
    rows: list[Row] = []
    for batches in (1, 4):
        works = (queries.own(batches), queries.ours(batches, "entry binary"), queries.ours(batches, None))
        for work in works:  # the first of each compile
            work()
        own, one, all_ = zip(*(tuple(work() for work in works) for _ in range(rounds)), strict=True)
        what = f"streaming into Parquet, {batches} per micro-batch, of Spark's file source"
        rows.append(ratio_of(f"{what}, one column", own, one))
        rows.append(ratio_of(f"{what}, all columns", own, all_))
    return rows


class _Queries:
    def __init__(self, spark: SparkSession, url: str, root: Path, planned: Planned) -> None:
        self._spark, self._url, self._root, self._planned = spark, url, root, planned
        self._largest = max(descriptor.entries for descriptor in planned.descriptors)
        self._turns = iter(range(10_000))

    def own(self, batches: int) -> Callable[[], Spent]:
        files = self._spark.readStream.schema("entry binary, range int").option("maxFilesPerTrigger", batches)
        return lambda: self._drained(files.parquet(f"{self._url}/data"))

    def ours(self, batches: int, schema: str | None) -> Callable[[], Spent]:
        def work() -> Spent:
            source = self._spark.readStream.format("tenure-buffer").option("group", f"bench-{next(self._turns)}")
            source = source.option("maxEntriesPerTrigger", batches * self._largest)
            return self._drained((source.schema(schema) if schema else source).load(self._url))

        return work

    def _drained(self, stream: DataFrame) -> Spent:
        """What the micro-batches behind the first took, for each million entries."""
        out = self._root / f"stream-{next(self._turns)}"
        writer = stream.select("entry").writeStream.format("parquet").option("path", f"{out}/table")
        writer = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
        with _CpuTime() as spent:
            query = writer.start()
            query.awaitTermination()
        assert self._spark.read.parquet(f"{out}/table").count() == self._planned.entries
        done = [progress for progress in query.recentProgress if progress.numInputRows][1:]
        millions = sum(progress.numInputRows for progress in done) / 1_000_000
        windows = [_window(progress) for progress in done]
        cpu = sum(spent.at(end) - spent.at(start) for start, end in windows)
        return cpu / millions, sum(end - start for start, end in windows) / millions


def _window(progress: Any) -> tuple[float, float]:
    """When a micro-batch began and ended, in seconds of the system's clock."""
    began = datetime.fromisoformat(progress.timestamp).timestamp()
    return began, began + progress.durationMs["triggerExecution"] / 1000


class _CpuTime:
    """CPU time of all processes over the time of a block, by samples."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def at(self, moment: float) -> float:
        """Return the CPU time by then, evenly spread between two samples."""
        behind = bisect_right(self._samples, (moment, inf))
        (start, low), (end, high) = (
            self._samples[max(behind - 1, 0)],
            self._samples[min(behind, len(self._samples) - 1)],
        )
        return low if end <= start else low + (high - low) * (moment - start) / (end - start)

    def _run(self) -> None:
        while True:
            self._samples.append((time.time(), cpu_s()))
            if self._stop.wait(SAMPLE_S):
                return

    def __enter__(self) -> _CpuTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
