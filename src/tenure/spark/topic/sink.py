"""`TopicSink`: a topic as the sink of an ingest job, on any Spark and through Spark Connect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tenure.buffer.ingest.sink import Commit
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held
from tenure.spark.topic.options import WriteOptions, open_client, write_options
from tenure.spark.topic.rows import check_columns
from tenure.spark.topic.staging.delivery import deliver, resume
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, writer_id
from tenure.spark.topic.staging.task import STAGED_COLUMNS, parse_file, stage_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TopicSink"]


class TopicSink:
    """A sink that appends ranges of a buffer to an existing topic, each row once.

    ``select`` are SQL expressions that make the topic's columns of the frame's, like ``("entry AS payload",)``; without
    it the frame must have them. ``staging`` is a directory that tasks and driver reach, by a URL as of a buffer; it
    holds the marker and so belongs to the topic for as long as anything is written to it. ``options`` are those of the
    format ``tenure``. Raises Invalid (``bad_option``).

    >>> from tenure.spark import TopicSink
    >>> sink = TopicSink("http://127.0.0.1:8080", "orders", staging="s3://lake/staging", select=["entry AS payload"])
    >>> sink.name, sink.needs((4, 0)).packages
    ('topic', ())
    """

    schema_version = 1

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        staging: str,
        name: str = "topic",
        select: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        given = {option: str(value) for option, value in options.items()}
        self._options: WriteOptions = write_options({**given, "url": url, "topic": topic, "staging": staging})
        self._select = None if select is None else tuple(select)

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return no needs: any session will do."""
        return Needs()

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the end of the newest range that is done. Raises what the staging directory's store raises."""
        return Staging(self._options.staging).done(self._writer(buffer))

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Append the frame's rows, once; a range that was begun is completed from its record, without the frame.

        Return the rows that were staged and appended.

        Raises as `SparkSink.write`, and Conflict (``batch_unfinished``, ``resume_expired``), NotFound for a topic that
        is not there.
        """
        options = self._options
        staging, batch = Staging(options.staging), Batch(self._writer(commit.buffer), commit.high, options.topic)
        rows = frame if self._select is None else frame.selectExpr(*self._select)
        with open_client(options.url, retry_for_ms=options.retry_for_ms) as client:
            check_columns(rows.dtypes, topic_type=client.topic(options.topic).type)
            if is_held(commit, staging.done(batch.writer)) or resume(staging, client, batch):
                return None
            staging_task = partial(stage_arrow, options=options, writer=batch.writer)
            found = rows.mapInArrow(staging_task, STAGED_COLUMNS).collect()
            files = [parse_file(row["file"]) for row in found]
            about_to_publish(sum(file.rows for file in files))
            is_mine = deliver(staging, client, batch, files)
        staging.sweep(grace_ms=options.grace_ms)
        return sum(file.rows for file in files) if is_mine else None

    def _writer(self, buffer: str) -> str:
        return writer_id("buffer", buffer, self.name, self._options.topic)
