"""A topic as a streaming source. An offset ``{"seq": n}`` means "everything below n".

Spark asks for the latest offset only after the batch that ended at ``start`` is in its commit log. A log has no
frontier to move, so nothing is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tenure.contract.replies import TopicInfo
from tenure.spark.topic.options import ReadOptions, open_client
from tenure.spark.topic.parts import Missed, data_loss
from tenure.spark.topic.source import Part, parts_between, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TopicStreamReader", "end_of", "next_end"]


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader of a topic's log, from a seq on."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as all that follow
        info = self._info()
        start = self._options.start
        return {"seq": info.earliest_seq if start == "earliest" else end_of(info) if start == "latest" else start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.records_max is not None:
            return ReadMaxRows(options.records_max)
        return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = end_of(self._info())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return how far to read. Raises Corrupt (``data_lost``) where the log ends before ``start``."""
        info, options = self._info(), self._options
        end = end_of(info) if self._target is None else min(end_of(info), self._target)
        if end_of(info) < start["seq"]:
            if options.fail_on_loss:
                raise data_loss(options.topic, _recreated(start["seq"], end_of(info)))
            return {"seq": end_of(info)}
        if isinstance(limit, ReadAllAvailable):
            return {"seq": max(start["seq"], end)}
        return {"seq": next_end(info, start["seq"], end, options)}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"seq": end_of(self._info())}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, first_seq, end_seq = self._options, start["seq"], end["seq"]
        if first_seq == end_seq:
            return []
        if first_seq < end_seq:
            with open_client(options.url) as client:
                return parts_between(client, options, first_seq, end_seq - 1)
        return [Part(1, end_seq - 1, _recreated(first_seq, end_seq))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return read_rows(self._options, partition)

    def _info(self) -> TopicInfo:
        with open_client(self._options.url) as client:
            return client.topic(self._options.topic)


def end_of(info: TopicInfo) -> int:
    """Return the seq above the last record that cannot vanish any more: a stream never goes back."""
    return 1 + (info.head_seq if info.config.durability == "memory" else info.durable_seq)


def next_end(info: TopicInfo, start_seq: int, end_seq: int, options: ReadOptions) -> int:
    """Return the end of a limited batch. What lies below the first record costs nothing, and is passed over at once."""
    records_max = options.records_max
    if options.bytes_max is not None:
        mean_bytes = max(1, info.bytes // max(1, info.count))
        by_bytes = max(1, options.bytes_max // mean_bytes)
        records_max = by_bytes if records_max is None else min(records_max, by_bytes)
    if records_max is None:
        return max(start_seq, end_seq)
    return max(start_seq, min(end_seq, max(start_seq, info.earliest_seq) + records_max))


def _recreated(start_seq: int, end_seq: int) -> Missed:
    """Return the loss by a log that is shorter than what was read of it: it is another one."""
    return Missed(end_seq, start_seq - 1, "recreated", start_seq - end_seq)
