"""``writeStream.format("tenure")``: each micro-batch of a query into a topic, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tenure.errors import Invalid
from tenure.spark.topic.options import WriteOptions, open_client
from tenure.spark.topic.rows import check_columns
from tenure.spark.topic.staging.delivery import deliver
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, writer_id
from tenure.spark.topic.staging.task import stage
from tenure.spark.topic.writer import StagedMessage, dtypes, files_in

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["TopicStreamWriter"]

_QUERY_ID = "sql.streaming.queryId"


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer whose identity is the query's id.

    The id is kept in the checkpoint, so it is the same after a restart, and another one where the checkpoint was
    removed and the batches are numbered from 0. Raises Invalid (``bad_columns``), before any task runs.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = dtypes(schema)
        check_columns(self._columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if query is None:
            raise Invalid("Spark does not say which query this is: write each batch with a commitId", code="bad_option")
        return StagedMessage(list(stage(iterator, self._options, self._writer(query))), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Deliver a micro-batch. Raises as `deliver`, and NotFound for a missing topic; start the query again then."""
        queries = {message.query for message in messages if isinstance(message, StagedMessage)}
        assert len(queries) == 1, "even an empty batch has one task, and all are of one query"
        options, staging = self._options, Staging(self._options.staging)
        batch = Batch(self._writer(str(queries.pop())), batchId, options.topic)
        with open_client(options.url, retry_for_ms=options.retry_for_ms) as client:
            check_columns(self._columns, topic_type=client.topic(options.topic).type)
            deliver(staging, client, batch, files_in(messages))
        staging.sweep(grace_ms=options.grace_ms)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the commit may have failed after its choice, so only a sweep may remove files."""

    def _writer(self, query: str) -> str:
        return writer_id("query", query, self._options.topic)
