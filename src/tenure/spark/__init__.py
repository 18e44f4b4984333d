"""The data pipeline: Spark jobs from a buffer and topics to tables and reports.

``ingest`` brings a buffer into a table, exactly once; the classes are the tables. ``docs/design/spark.md`` has the
proof. Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.spark.decode import decoded, read_schema
    from tenure.spark.jobs.backfill import backfill
    from tenure.spark.jobs.compact_buffer import Compacted, compact
    from tenure.spark.jobs.compact_table import CompactedTable, compact_table
    from tenure.spark.jobs.ingest import follow, ingest
    from tenure.spark.jobs.plan import Limits, Planned
    from tenure.spark.jobs.range_writer import Done, Summary
    from tenure.spark.jobs.retrying import Waiting
    from tenure.spark.jobs.streaming import write_stream
    from tenure.spark.reader.settings import ReaderSettings
    from tenure.spark.report.events import BufferEvents, TableEvents
    from tenure.spark.report.job import Scope, make_report
    from tenure.spark.report.model import Figures
    from tenure.spark.session.session import open_session
    from tenure.spark.sinks.delta.sink import DeltaSink
    from tenure.spark.sinks.delta.small import SmallDelta
    from tenure.spark.sinks.files.table import FileTable, files
    from tenure.spark.sinks.iceberg.sink import IcebergSink
    from tenure.spark.sinks.iceberg.small import SmallIceberg
    from tenure.spark.sinks.postgres.sink import PostgresSink
    from tenure.spark.sinks.protocol import Needs, SparkSink
    from tenure.spark.stream.formats import register
    from tenure.spark.topic.sink import TopicSink

_HOMES = {
    "BufferEvents": "report.events",
    "Compacted": "jobs.compact_buffer",
    "CompactedTable": "jobs.compact_table",
    "DeltaSink": "sinks.delta.sink",
    "Done": "jobs.range_writer",
    "Figures": "report.model",
    "FileTable": "sinks.files.table",
    "IcebergSink": "sinks.iceberg.sink",
    "Limits": "jobs.plan",
    "Needs": "sinks.protocol",
    "Planned": "jobs.plan",
    "PostgresSink": "sinks.postgres.sink",
    "ReaderSettings": "reader.settings",
    "Scope": "report.job",
    "SmallDelta": "sinks.delta.small",
    "SmallIceberg": "sinks.iceberg.small",
    "SparkSink": "sinks.protocol",
    "Summary": "jobs.range_writer",
    "TableEvents": "report.events",
    "TopicSink": "topic.sink",
    "Waiting": "jobs.retrying",
    "backfill": "jobs.backfill",
    "compact": "jobs.compact_buffer",
    "compact_table": "jobs.compact_table",
    "decoded": "decode",
    "files": "sinks.files.table",
    "follow": "jobs.ingest",
    "ingest": "jobs.ingest",
    "make_report": "report.job",
    "open_session": "session.session",
    "read_schema": "decode",
    "register": "stream.formats",
    "write_stream": "jobs.streaming",
}

__all__ = [
    "BufferEvents",
    "Compacted",
    "CompactedTable",
    "DeltaSink",
    "Done",
    "Figures",
    "FileTable",
    "IcebergSink",
    "Limits",
    "Needs",
    "Planned",
    "PostgresSink",
    "ReaderSettings",
    "Scope",
    "SmallDelta",
    "SmallIceberg",
    "SparkSink",
    "Summary",
    "TableEvents",
    "TopicSink",
    "Waiting",
    "backfill",
    "compact",
    "compact_table",
    "decoded",
    "files",
    "follow",
    "ingest",
    "make_report",
    "open_session",
    "read_schema",
    "register",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
