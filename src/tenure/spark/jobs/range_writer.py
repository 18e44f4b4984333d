"""Bringing ranges into a sink, one at a time, and counting them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.buffer.reading.lag import Lag
from tenure.errors import Corrupt, Indeterminate
from tenure.spark.jobs.causes import failure, is_of_spark
from tenure.spark.jobs.plan import Planned
from tenure.spark.reader.reader import RangeReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["Done", "Mover", "OnRange", "Summary", "Transform"]

log = logging.getLogger("tenure.spark")

Transform = Callable[["DataFrame"], "DataFrame"]


class Summary(msgspec.Struct, frozen=True):
    """What a run moved; ``low`` and ``high`` are None where it moved nothing."""

    ranges: int = 0
    batches: int = 0
    entries: int = 0
    bytes: int = 0
    low: int | None = None
    high: int | None = None
    seconds: float = 0.0
    passed_over: int = 0
    """Batches that the table held already."""

    def plus(self, planned: Planned, seconds: float) -> Summary:
        """With one more range, ``seconds`` after the run began."""
        return msgspec.structs.replace(
            self,
            ranges=self.ranges + 1,
            batches=self.batches + len(planned.descriptors),
            entries=self.entries + planned.entries,
            bytes=self.bytes + planned.bytes,
            low=planned.low if self.low is None else self.low,
            high=planned.high,
            seconds=seconds,
        )


class Done(msgspec.Struct, frozen=True):
    """One range that is in the table: how long it took, the run so far, and how far the group is behind."""

    planned: Planned
    seconds: float
    summary: Summary
    lag: Lag | None
    """None where a streaming query could not find out."""
    is_measured: bool = True
    """False where ``planned`` and ``summary`` lack entries and bytes of this range, which only the manifest knows."""


OnRange = Callable[[Done], None]


class Mover:
    """Reads, transforms and writes; ``summary`` says what was moved so far."""

    def __init__(
        self,
        spark: SparkSession,
        sink: SparkSink,
        reader: RangeReader,
        *,
        transform: Transform | None = None,
        on_range: OnRange | None = None,
    ) -> None:
        self._spark, self._sink, self._reader = spark, sink, reader
        self._transform = transform
        self._on_range = on_range
        self._began_s = time.monotonic()
        self.summary = Summary()

    def write(self, planned: Planned) -> None:
        """Read, transform and write a range. Raises Corrupt for a batch that is gone or damaged, whatever the sink made
        of it, and what the sink raises; Indeterminate only if the table, asked once more, does not hold it. An error of
        Spark's is raised as what its innermost cause means, Conflict (``spark_failed``) where that is not known.
        """
        commit, writing = planned.commit(self._sink), False
        try:
            frame = self._reader.read(planned)
            rows = frame if self._transform is None else self._transform(frame)
            writing = True
            self._sink.write(rows, commit)
        except Corrupt:
            raise
        except Exception as error:
            if isinstance(error, Indeterminate) and self._holds(commit):
                return
            blamed = self._reader.blamed(error, planned)
            if blamed is not None:
                raise blamed from error
            if not writing or not is_of_spark(error):  # what the caller's own transform raises stays what it is
                raise
            raise failure(error, f"batches {planned.low} to {planned.high} were not written") from error

    def count(self, planned: Planned, began_s: float, lag: Lag) -> None:
        """Add a range that is done to the summary, and report it; log what was left out of it."""
        if left_out := planned.high + 1 - planned.low - len(planned.descriptors):
            log.warning("of batches %s to %s %s were given up and left out", planned.low, planned.high, left_out)
        now_s = time.monotonic()
        self.summary = self.summary.plus(planned, now_s - self._began_s)
        if self._on_range is not None:
            self._on_range(Done(planned, now_s - began_s, self.summary, lag))

    def _holds(self, commit: Commit) -> bool:
        last = self._sink.last_committed(self._spark, commit.buffer)
        return last is not None and last >= commit.high
