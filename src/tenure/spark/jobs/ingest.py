"""The ingest job: plan the next range, read it, write it with the range as its identity, then acknowledge it.

The table's own sequence is the checkpoint: after any crash the next run asks the table how far it is and continues
there. Nothing here is newer than Spark 3.5 or needs more than Spark Connect offers.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from tenure.buffer.inspect import buffer_id
from tenure.errors import Conflict, Invalid, LeaseLost
from tenure.objects.background import background
from tenure.spark.jobs.causes import named_causes
from tenure.spark.jobs.plan import Limits, Plan
from tenure.spark.jobs.range_writer import Done, OnRange, RangeWriter, Summary, Transform, write_range
from tenure.spark.jobs.retrying import RETRY_MS, OnWait, Retrying, Stopped
from tenure.spark.reader.reader import RangeReader, ReaderName
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["Done", "Summary", "follow", "ingest"]

log = logging.getLogger("tenure.spark")


def ingest(
    spark: SparkSession,
    buffer_url: str,
    sink: SparkSink,
    *,
    group: str = "default",
    transform: Transform | None = None,
    reader: ReaderName = "auto",
    limits: Limits | None = None,
    settings: ReaderSettings | None = None,
    on_range: OnRange | None = None,
    stop: threading.Event | None = None,
    retry_ms: int = RETRY_MS,
    on_wait: OnWait | None = None,
) -> Summary:
    """Bring everything that the buffer holds for the group into the sink, range by range, and return.

    Once ``stop`` is set, it returns after the range under way. ``transform`` takes a frame with the columns ``seq,
    index, ingestion_time, metadata, entry`` and returns the one that is written. What the table or the store refuses
    for now is repeated for ``retry_ms``, and reported to ``on_wait``. Raises LeaseLost (``fenced``) where a second job
    took the group over, Corrupt for a batch that is gone or damaged, Conflict where table and group contradict
    (``sink_behind``, ``sink_ahead``, ``sink_moved``) or Spark's job fails for a reason of its own (``spark_failed``),
    and what the sink raises. After any error, the next run continues after what the table holds.
    """
    source = RangeReader(spark, buffer_url, reader=reader, settings=settings)
    writer = RangeWriter(spark, sink, source, transform=transform, on_range=on_range)
    retrying = Retrying(within_ms=retry_ms, stop=stop or threading.Event(), on_wait=on_wait)
    opening = partial(_open_plan, spark, buffer_url, sink, group=group, limits=limits, settings=settings)
    with suppress(Stopped), retrying(opening) as plan:
        _drain(plan, writer, retrying)
    return writer.summary


def follow(
    spark: SparkSession,
    buffer_url: str,
    sink: SparkSink,
    *,
    stop: threading.Event,
    poll_ms: int = 1_000,
    group: str = "default",
    transform: Transform | None = None,
    reader: ReaderName = "auto",
    limits: Limits | None = None,
    settings: ReaderSettings | None = None,
    on_range: OnRange | None = None,
    on_wait: OnWait | None = None,
) -> Summary:
    """Run ``ingest`` again every ``poll_ms`` until ``stop`` is set; the range under way is brought to its end.

    What the table or the store refuses for now is repeated for as long as it takes, at most half a minute apart.
    """
    if poll_ms < 1:
        raise Invalid(f"poll_ms must be at least 1, not {poll_ms}")
    source = RangeReader(spark, buffer_url, reader=reader, settings=settings)
    writer = RangeWriter(spark, sink, source, transform=transform, on_range=on_range)
    retrying = Retrying(within_ms=None, stop=stop, on_wait=on_wait)
    opening = partial(_open_plan, spark, buffer_url, sink, group=group, limits=limits, settings=settings)
    with suppress(Stopped), retrying(opening) as plan:
        while not stop.is_set():
            _drain(plan, writer, retrying)
            stop.wait(poll_ms / 1000)
    return writer.summary


def _open_plan(
    spark: SparkSession,
    url: str,
    sink: SparkSink,
    *,
    group: str,
    limits: Limits | None,
    settings: ReaderSettings | None,
) -> Plan:
    """Return a plan that continues after what the table holds.

    The job before this one may commit between the question and the moment it is fenced: then the answer is old, and the
    table is asked again.
    """
    given = (settings or ReaderSettings()).buffer
    buffer = background().run(buffer_id(url, settings=given))
    with named_causes("the table cannot say how far it is"):
        last = sink.last_committed(spark, buffer)
    while True:
        try:
            return Plan(url, group=group, last_committed=last, limits=limits, settings=given)
        except Conflict:
            before, last = last, sink.last_committed(spark, buffer)
            if before == last:
                raise


def _drain(plan: Plan, writer: RangeWriter, retrying: Retrying) -> None:
    """Write range after range until there is none, or ``stop`` is set."""
    try:
        while not retrying.stop.is_set():
            began_s = time.monotonic()
            planned = retrying(plan.next)
            if planned is None:
                return
            planned = write_range(writer, retrying, planned, halve=plan.halve)
            retrying(partial(plan.ack_through, planned.high))
            writer.count(planned, began_s, plan.lag)
            log.info("batches %s to %s of %s are in the table", planned.low, planned.high, planned.buffer)
    except LeaseLost as error:
        raise LeaseLost(
            f"a second job on the same group, {plan.group}, has started, so this one stops: a group has one job at a "
            f"time. What the table holds stays ({error.message})",
            code=error.code,
            **error.detail,
        ) from error
