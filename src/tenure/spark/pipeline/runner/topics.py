"""A topic as the source of a pipeline: a streaming query whose micro-batches are commits named by the seqs they read.

The table's own sequence is the checkpoint here too. Spark's decides how far each micro-batch goes, so that one that is
run again is the same; where it is lost, the query begins after what the table holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tenure.buffer.ingest.sink import Commit
from tenure.buffer.reading.lag import Lag
from tenure.clock import SystemClock
from tenure.errors import Corrupt
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.stream.offsets import seq_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tenure.spark.sinks.protocol import SparkSink

__all__ = ["topic_lag", "topic_query"]

_RAW: Final = (
    "seq",
    "CAST(0 AS BIGINT) AS index",
    "ts AS ingestion_time",
    "CAST(meta AS BINARY) AS metadata",
    "payload AS entry",
)
"""A record in the columns of a buffer."""


def topic_query(spark: SparkSession, pipeline: Pipeline, sink: SparkSink, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start the query. Raises what the sink raises where it is asked how far its table is."""
    source, checkpoint = pipeline.source, pipeline.checkpoint_url
    identity = f"topic:{source.topic}"
    first = 1 + (sink.last_committed(spark, identity) or 0)
    options = {
        "url": source.url,
        "topic": source.topic,
        "startingSeq": str(first) if first > 1 else "earliest",
        "failOnDataLoss": str(source.fail_on_loss).lower(),
        "maxRecordsPerTrigger": str(source.entries_max),
        "maxBytesPerTrigger": str(source.bytes_max),
    }
    records = spark.readStream.format("tenure").options(**options).load()

    def write(rows: DataFrame, batch_id: int) -> None:
        end = seq_of(checkpoint, batch_id)
        low = seq_of(checkpoint, batch_id - 1) if batch_id else min(first, end or first)
        if end is None or low is None:
            raise Corrupt(f"{checkpoint} does not say what micro-batch {batch_id} reads", code="checkpoint_damaged")
        if low < end:
            sink.write(
                rows.where("tombstone IS NULL").selectExpr(*_RAW),
                Commit(identity, sink.name, low, end - 1, sink.schema_version),
            )

    writer = records.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def topic_lag(pipeline: Pipeline, last: int | None) -> Lag:
    """Return the lag of a table that holds everything up to ``last``, in one request.

    It counts the seqs from the first record that waits to the last, and the age of the first. Raises what the server's
    answer means.
    """
    from tenure.spark.topic.options import open_client

    source = pipeline.source
    assert source.url is not None
    assert source.topic is not None
    with open_client(source.url) as client:
        found = client.diff(source.topic, from_seq=last or 0, limit=1, include_meta=False)
    if not found.records:
        return Lag(0, 0)
    first = found.records[0]
    return Lag(found.head_seq + 1 - first.seq, max(0, SystemClock().wall_ms() - first.ts))
