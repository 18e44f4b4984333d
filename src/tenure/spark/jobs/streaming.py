"""Streaming into an exactly-once table: each micro-batch is one commit, named by the range of the buffer it read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid
from tenure.objects.store import open_store
from tenure.spark.jobs.balanced import BalancedWrite, Transform
from tenure.spark.sinks.protocol import SparkSink
from tenure.spark.stream.offsets import checkpoint_store_url, offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["FAST_CHECKPOINTS", "write_stream"]

FAST_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Configuration for checkpoints on a local disk; the class has had this name since Spark 4.1."""


def write_stream(
    frame: DataFrame,
    sink: SparkSink,
    *,
    checkpoint: str,
    transform: Transform | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that writes a stream of ``tenure-buffer`` to a sink, and return it.

    Each micro-batch is one commit whose identity is the range it read, which Spark has logged before it runs: a
    micro-batch that is run again after a crash has the same one, and the sink holds it already or takes it. ``trigger``
    is what ``DataStreamWriter.trigger`` takes, such as ``{"availableNow": True}``; without it micro-batches follow each
    other. Do not put steps that keep state in ``transform``. Raises Invalid for a checkpoint whose files cannot be read
    from here.
    """
    open_store(checkpoint_store_url(checkpoint))

    def write(rows: DataFrame, batch_id: int) -> None:
        range_ = offsets_of(checkpoint, batch_id)
        if range_ is None:
            _refuse_rows(rows, batch_id)
            return
        commit = Commit(range_.buffer, sink.name, range_.low, range_.high, sink.schema_version)
        BalancedWrite(sink, rows, entries=None, transform=transform).store(commit)

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def _refuse_rows(rows: DataFrame, batch_id: int) -> None:
    """Raise for rows of a micro-batch that read nothing: they come from state, and a replay could not name them."""
    if not rows.isEmpty():
        raise Invalid(
            f"micro-batch {batch_id} has rows and read nothing from the buffer: write_stream takes no query with state",
            code="rows_without_range",
        )
