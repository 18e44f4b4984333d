"""The data pipeline: from buffer and topics to tables and reports, as Spark jobs.

``ingest`` brings a buffer into a table, exactly once; the classes are the tables. ``docs/design/spark.md`` says why it
is safe. Nothing here looks for pyspark before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.spark.compacting import Compacted, compact
    from tenure.spark.decode import decoded, read_schema
    from tenure.spark.formats import register
    from tenure.spark.ingesting import follow, ingest
    from tenure.spark.mover import Done, Summary
    from tenure.spark.plan import Limits, Planned
    from tenure.spark.reader_settings import ReaderSettings
    from tenure.spark.replaying import backfill
    from tenure.spark.report.job import Scope, make_report
    from tenure.spark.report.model import Figures
    from tenure.spark.report.source import BufferEvents, TableEvents
    from tenure.spark.retrying import Waiting
    from tenure.spark.session import open_session
    from tenure.spark.sinks.delta import DeltaSink
    from tenure.spark.sinks.file_table import FileTable, files
    from tenure.spark.sinks.iceberg import IcebergSink
    from tenure.spark.sinks.postgres import PostgresSink
    from tenure.spark.sinks.protocol import Needs, SparkSink
    from tenure.spark.sinks.small_delta import SmallDelta
    from tenure.spark.sinks.small_iceberg import SmallIceberg
    from tenure.spark.streaming import write_stream
    from tenure.spark.table_compaction import CompactedTable, compact_table
    from tenure.spark.topic.sink import TopicSink

_HOMES = {
    "BufferEvents": "report.source",
    "Compacted": "compacting",
    "CompactedTable": "table_compaction",
    "DeltaSink": "sinks.delta",
    "Done": "mover",
    "Figures": "report.model",
    "FileTable": "sinks.file_table",
    "IcebergSink": "sinks.iceberg",
    "Limits": "plan",
    "Needs": "sinks.protocol",
    "Planned": "plan",
    "PostgresSink": "sinks.postgres",
    "ReaderSettings": "reader_settings",
    "Scope": "report.job",
    "SmallDelta": "sinks.small_delta",
    "SmallIceberg": "sinks.small_iceberg",
    "SparkSink": "sinks.protocol",
    "Summary": "mover",
    "TableEvents": "report.source",
    "TopicSink": "topic.sink",
    "Waiting": "retrying",
    "backfill": "replaying",
    "compact": "compacting",
    "compact_table": "table_compaction",
    "decoded": "decode",
    "files": "sinks.file_table",
    "follow": "ingesting",
    "ingest": "ingesting",
    "make_report": "report.job",
    "open_session": "session",
    "read_schema": "decode",
    "register": "formats",
    "write_stream": "streaming",
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
