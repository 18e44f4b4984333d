"""Run a pipeline as one streaming query, from the buffer or a topic into its tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.spark.jobs.plan import Planned
from tenure.spark.jobs.range_writer import Done, OnRange, Summary
from tenure.spark.jobs.retrying import RETRY_MS, OnWait, Retrying, Stopped
from tenure.spark.jobs.streaming import write_stream
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.rows.outputs import Outputs
from tenure.spark.pipeline.runner.progress import Progress, entries_of, progress_of
from tenure.spark.pipeline.runner.topics import topic_query
from tenure.spark.stream.formats import need_streams, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["stream"]

_LOOK_EVERY_S: Final = 0.2
_IDLE_WITHIN_S: Final = 60


class _RepeatedOutputs:
    """The outputs as the sink of a query.

    A refusal for now is repeated. An error is kept, because Spark passes on its text alone.
    """

    def __init__(self, outputs: Outputs, retrying: Retrying) -> None:
        self.name, self.schema_version = outputs.name, outputs.schema_version
        self.needs, self.last_committed = outputs.needs, outputs.last_committed
        self.raised: Exception | None = None
        self._outputs, self._retrying = outputs, retrying

    def write(self, frame: DataFrame, commit: Commit) -> None:
        try:
            self._retrying(partial(self._outputs.write, frame, commit))
        except Exception as error:
            self.raised = error
            raise


def stream(
    spark: SparkSession,
    pipeline: Pipeline,
    outputs: Outputs,
    *,
    once: bool,
    stop: threading.Event,
    on_range: OnRange,
    on_wait: OnWait,
) -> None:
    """Run until ``stop`` is set, or with ``once`` until everything is written, and return between two micro-batches.

    Raises Invalid (``spark_too_old``) below Spark 4.2, what the tables raise, and any other failure of the query.
    """
    need_streams(spark)
    register(spark)
    outputs.entries_of = entries_of(pipeline)
    outputs.on_write = _reporter(on_range, progress_of(pipeline))
    retrying = Retrying(within_ms=RETRY_MS if once else None, stop=stop, on_wait=on_wait)
    sink = _RepeatedOutputs(outputs, retrying)
    start = _from_buffer if pipeline.source.topic is None else topic_query
    every = {"processingTime": f"{pipeline.schedule.every_ms} milliseconds"}
    with suppress(Stopped):
        query = retrying(partial(start, spark, pipeline, sink, {"availableNow": True} if once else every))
        while query.isActive and not stop.wait(_LOOK_EVERY_S):
            pass
        _wait_until_idle(query)
        if query.isActive:
            query.stop()
            return  # the micro-batch under way, if any, is run again
        error = sink.raised or query.exception()
        if error is not None:
            raise error


def _from_buffer(
    spark: SparkSession, pipeline: Pipeline, sink: SparkSink, trigger: Mapping[str, Any]
) -> StreamingQuery:
    source = pipeline.source
    frame = (
        spark.readStream.format("tenure-buffer")
        .option("path", pipeline.buffer_url)
        .option("group", source.group)
        .option("maxEntriesPerTrigger", str(source.entries_max))
        .option("maxBytesPerTrigger", str(source.bytes_max))
        .load()
    )
    return write_stream(frame, sink, checkpoint=pipeline.checkpoint_url, trigger=trigger)


def _reporter(on_range: OnRange, ahead: Progress) -> Callable[[Commit], None]:
    """Return a function that reports a written micro-batch: what was read for it, and what is still to come."""
    began_s = time.monotonic()
    summary = Summary()

    def report(commit: Commit) -> None:
        nonlocal summary
        descriptors, lag = ahead(commit)
        planned = Planned(commit.buffer, commit.low, commit.high, descriptors or ())
        batches = summary.batches + commit.high + 1 - commit.low
        summary = msgspec.structs.replace(summary.plus(planned, time.monotonic() - began_s), batches=batches)
        on_range(Done(planned, 0.0, summary, lag, is_measured=descriptors is not None))

    return report


def _wait_until_idle(query: StreamingQuery) -> None:
    """Wait for the micro-batch under way to end, for a limited time."""
    until_s = time.monotonic() + _IDLE_WITHIN_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
