"""The format ``tenure``: topics of a running server as a source and as a sink of Spark.

It needs the Python Data Source API: Spark 4.0 for batches and for the sink, 4.1 to stream into a topic, 4.2 to stream
from one. What is newer than 4.0 is imported only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from tenure.client.client import Client
from tenure.contract.replies import Diff
from tenure.errors import Invalid
from tenure.spark.topic.options import ReadOptions, open_client, read_options, write_options
from tenure.spark.topic.parts import COLUMNS, Found, Missed, data_loss, missed_in, read_part, split, to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Part", "TopicDataSource", "parts_between", "read_rows"]


class TopicDataSource(DataSource):
    """The data source of ``spark.read.format("tenure")`` and the others."""

    @classmethod
    def name(cls) -> str:
        return "tenure"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            from tenure.spark.topic.stream_source import TopicStreamReader
        except ImportError as error:
            raise _too_old("streaming from a topic", "4.2") from error
        return TopicStreamReader(read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tenure.spark.topic.writer import TopicWriter

        return TopicWriter(write_options(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        try:
            from tenure.spark.topic.stream_writer import TopicStreamWriter
        except ImportError as error:
            raise _too_old("streaming into a topic", "4.1") from error
        return TopicStreamWriter(write_options(self.options), schema)


def _too_old(what: str, version: str) -> Invalid:
    return Invalid(f"{what} needs Spark {version} or later", code="spark_too_old")


class Part(InputPartition):
    """The seqs that one task reads, and what was lost before them."""

    def __init__(self, first_seq: int, last_seq: int, missed: Missed | None = None) -> None:
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.missed = missed


class TopicReader(DataSourceReader):
    """A reader of a part of a log that is fixed when the query is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks. Raises Invalid (``bad_option``) for seqs beyond the log, Corrupt (``data_lost``)."""
        options = self._options
        with open_client(options.url) as client:
            info = client.topic(options.topic)
            head_seq = info.durable_seq if info.config.durability in ("fsync", "replicated") else info.head_seq
            starts = {"earliest": info.earliest_seq, "latest": head_seq + 1}
            first_seq = options.start if isinstance(options.start, int) else starts[options.start]
            last_seq = head_seq if options.last_seq is None else options.last_seq
            if max(first_seq - 1, last_seq) > head_seq:
                message = f"{options.topic} ends at {head_seq}, before startingSeq or endingSeq"
                raise Invalid(message, code="bad_option")
            return parts_between(client, options, first_seq, last_seq)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read_rows(self._options, partition)


def parts_between(client: Client, options: ReadOptions, first_seq: int, last_seq: int) -> list[Part]:
    """Return the tasks that read these seqs. A loss that is there already is found before any of them starts.

    Raises Corrupt (``data_lost``) where nothing may be missed.
    """
    if first_seq > last_seq:
        return []
    found = client.diff(options.topic, from_seq=first_seq - 1, limit=1)
    if found.tombstone is not None and options.fail_on_loss:
        missed = missed_in(found.tombstone, first_seq, last_seq)
        if missed is not None:
            raise data_loss(options.topic, missed)
    return [Part(*part) for part in split(first_seq, last_seq, parts_max=options.partitions_max)]


def read_rows(options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, in a task. Raises Corrupt (``data_lost``) where nothing may be missed."""
    with open_client(options.url) as client:

        def page(from_seq: int, limit: int) -> Diff:
            return client.diff(options.topic, from_seq=from_seq, limit=limit, include_tags=True)

        def found() -> Iterator[Found]:
            lost_before = [] if part.missed is None else [part.missed]
            for item in chain(lost_before, read_part(page, part.first_seq, part.last_seq)):
                if isinstance(item, Missed) and options.fail_on_loss:
                    raise data_loss(options.topic, item)
                yield item

        yield from to_arrow(found())
