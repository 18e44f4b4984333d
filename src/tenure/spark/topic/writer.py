"""``df.write.format("tenure")``: a frame into a topic, once for each commit id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tenure.errors import Invalid
from tenure.spark.topic.options import WriteOptions, open_client
from tenure.spark.topic.rows import check_columns
from tenure.spark.topic.staging.delivery import deliver
from tenure.spark.topic.staging.directory import Staging
from tenure.spark.topic.staging.record import Batch, StagedFile, writer_id
from tenure.spark.topic.staging.task import stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StagedMessage", "TopicWriter", "dtypes", "files_in"]


class StagedMessage(WriterCommitMessage):
    """The files that a task has staged; ``query`` is the id of the streaming query, if any."""

    def __init__(self, files: Sequence[StagedFile], query: str | None = None) -> None:
        self.files = tuple(files)
        self.query = query


def files_in(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return all files of these messages, in the order of their tasks."""
    return [file for message in messages if isinstance(message, StagedMessage) for file in message.files]


def dtypes(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types as ``DataFrame.dtypes`` does."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


class TopicWriter(DataSourceArrowWriter):
    """One write. A repeat with the same commit id adds nothing.

    Raises Invalid (``bad_columns``, ``bad_option``) and NotFound for a topic that is not there, before any task runs.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise Invalid("a topic is only appended to: use mode append", code="bad_option")
        if options.commit_id is None and options.exactly_once:
            raise Invalid(
                "option commitId is missing: a name for this write that a repeat of it uses again, like the day that "
                "it is about. With exactlyOnce set to false none is needed, and a repeat appends the rows again",
                code="bad_option",
            )
        self._options = options
        self._batch = Batch(writer_id("commit", options.commit_id or uuid.uuid4().hex, options.topic), 0, options.topic)
        with open_client(options.url) as client:
            check_columns(dtypes(schema), topic_type=client.topic(options.topic).type)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return StagedMessage(list(stage(iterator, self._options, self._batch.writer)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Deliver the rows. Raises as `deliver`; the write may then be repeated."""
        options, staging = self._options, Staging(self._options.staging)
        with open_client(options.url, retry_for_ms=options.retry_for_ms) as client:
            deliver(staging, client, self._batch, files_in(messages))
        staging.sweep(grace_ms=options.grace_ms)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the commit may have failed after its choice, so only a sweep may remove files."""
