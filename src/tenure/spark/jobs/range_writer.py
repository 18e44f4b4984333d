"""The range writer: read, transform and write ranges into a sink, one at a time, in halves where one is too large.

The end of a range is decided before the size of its rows is known, and stays decided. So a range that is too large for
the driver is halved at the middle of its sequences, which is the same for every driver; the end of the second half is
agreed on before the first is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.buffer.reading.lag import Lag
from tenure.errors import Corrupt, Indeterminate, Invalid
from tenure.spark.jobs.balanced import BalancedWrite, Transform
from tenure.spark.jobs.causes import is_of_spark, job_error
from tenure.spark.jobs.plan import Planned
from tenure.spark.jobs.retrying import Retrying
from tenure.spark.reader.reader import RangeReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["Done", "OnRange", "RangeWriter", "Summary", "Transform", "write_range"]

log = logging.getLogger("tenure.spark")


class Summary(msgspec.Struct, frozen=True):
    """The total of a run; ``low`` and ``high`` are None where it wrote nothing."""

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
        """Return the total with one more range, ``seconds`` after the run began."""
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
    """One range that is in the table: how long it took, the run so far, and the group's lag."""

    planned: Planned
    seconds: float
    summary: Summary
    lag: Lag | None
    """None where a streaming query could not find out."""
    is_measured: bool = True
    """False where ``planned`` and ``summary`` lack entries and bytes of this range, which only the manifest knows."""


OnRange = Callable[[Done], None]


class RangeWriter:
    """A writer of ranges into a sink; ``summary`` is the total so far."""

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
        """Read, transform and write a range.

        Raises Corrupt for a batch that is gone or damaged, whatever the sink made of it, Conflict (``unbalanced``)
        where the table does not hold what the manifest and the transformation account for, and what the sink raises;
        Indeterminate only if the table, asked once more, does not hold it. Raises for an error of Spark's what its
        innermost cause means, Conflict (``spark_failed``) where that is not known.
        """
        commit, writing = planned.commit(self._sink), False
        try:
            frame = self._reader.read(planned)
            write = BalancedWrite(self._sink, frame, entries=planned.entries, transform=self._transform)
            writing = True
            write.store(commit)
        except Corrupt:
            raise
        except Exception as error:
            if isinstance(error, Indeterminate) and self._holds(commit):
                return
            blamed = self._reader.find_bad_batch(error, planned)
            if blamed is not None:
                raise blamed from error
            if not writing or not is_of_spark(error):  # an error of the caller's own transform is raised as it is
                raise
            raise job_error(error, f"batches {planned.low} to {planned.high} were not written") from error

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


def write_range(
    writer: RangeWriter, retrying: Retrying, planned: Planned, *, halve: Callable[[Planned], Planned]
) -> Planned:
    """Write a range, or as much of its beginning as the table takes at once; return what was written.

    Raises as ``RangeWriter.write``, Invalid (``too_large_for_driver``) only for a single batch.
    """
    while True:
        try:
            retrying(partial(writer.write, planned))
        except Invalid as error:
            if error.code != "too_large_for_driver" or planned.low == planned.high:
                raise
            log.info("batches %s to %s are written in halves: %s", planned.low, planned.high, error)
            planned = retrying(partial(halve, planned))
        else:
            return planned
