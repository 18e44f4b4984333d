"""The sinks that the crash suite is run over: how to make each, how to read it, and which of its calls commits.

A new sink is one more `Case`. Its table holds the raw columns that a job writes without a transform.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.errors import Invalid
from tenure.spark.session.session import spark_version
from tenure.spark.sinks.protocol import Needs, SparkSink
from tests.spark.topic_case import COMMITS, topic_at, topic_read, topic_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CASES", "Case", "known"]


@dataclass(frozen=True)
class Case:
    """A kind of table. ``place`` is where one is: a path below the test's directory, or what ``at`` makes of it."""

    name: str
    make: Callable[[str], SparkSink]
    read: Callable[[SparkSession, str], DataFrame]
    commits: str | None
    """``module:Class.method``: the call that commits what is already written. None where rows and commit are one call
    into a library: there the suite kills at random moments only."""
    at: Callable[[Path, str], str] = lambda folder, postgres: str(folder)
    """The place, from a directory that is empty and the URL of a PostgreSQL that is running."""

    def needs(self) -> Needs | None:
        """What a session must have; None where this Spark has no connector."""
        try:
            return self.make(self.at(Path("/nowhere"), "postgresql://nobody@127.0.0.1/none")).needs(spark_version())
        except Invalid:
            return None


def file_table(place: str) -> SparkSink:
    from tenure.spark.sinks.files.table import FileTable

    return FileTable(place)


def read_file_table(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.parquet(place)


def postgres_at(folder: Path, url: str) -> str:
    """A table of its own for each place of each test: they share the server."""
    name = re.sub(r"[^a-z0-9]", "_", f"{folder.parent.name}_{folder.name}".lower())
    return f"{url}#rows_{name[-50:]}"


def postgres(place: str) -> SparkSink:
    from tenure.spark.sinks.postgres.sink import PostgresSink

    url, _, table = place.rpartition("#")
    return PostgresSink(url, table)


def read_postgres(spark: SparkSession, place: str) -> DataFrame:
    """By JDBC, past the sink."""
    from psycopg.conninfo import conninfo_to_dict

    url, _, table = place.rpartition("#")
    parts = conninfo_to_dict(url)
    reader = spark.read.format("jdbc").option("driver", "org.postgresql.Driver")
    reader = reader.option("url", f"jdbc:postgresql://{parts['host']}:{parts['port']}/{parts['dbname']}")
    reader = reader.option("user", str(parts["user"])).option("password", os.environ["PGPASSWORD"])
    return reader.option("dbtable", f'"{table}"').load()


def delta(place: str) -> SparkSink:
    from tenure.spark.sinks.delta.sink import DeltaSink

    return DeltaSink(place)


def merged_delta(place: str) -> SparkSink:
    """Every row has a key of its own, so the table ends with the same rows as one that is appended to."""
    from tenure.spark.sinks.delta.sink import DeltaSink

    return DeltaSink(place, merge_keys=["seq", "index"], order_by=["seq", "index"])


def read_delta(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.format("delta").load(place)


def small_delta(place: str) -> SparkSink:
    from tenure.spark.sinks.delta.small import SmallDelta

    return SmallDelta(place)


def read_small_delta(spark: SparkSession, place: str) -> DataFrame:
    from deltalake import DeltaTable

    return spark.read.parquet(*DeltaTable(place).file_uris())


def iceberg(place: str) -> SparkSink:
    from tenure.spark.sinks.iceberg.sink import IcebergSink

    return IcebergSink(iceberg_table(place), warehouse=place)


def iceberg_table(place: str) -> str:
    """A catalog for each place: a session knows a catalog's warehouse for good."""
    return f"crash_{zlib.crc32(place.encode()):08x}.db.rows"


def read_iceberg(spark: SparkSession, place: str) -> DataFrame:
    iceberg(place).last_committed(spark, "any")  # configures the catalog in this session; so far only a child may have
    return spark.table(iceberg_table(place))


def small_iceberg(place: str) -> SparkSink:
    from tenure.spark.sinks.iceberg.small import SmallIceberg

    return SmallIceberg("db.rows", warehouse=place)


def read_small_iceberg(spark: SparkSession, place: str) -> DataFrame:
    from tenure.spark.sinks.iceberg.small import SmallIceberg

    table = SmallIceberg("db.rows", warehouse=place)._load()
    assert table is not None
    return spark.read.parquet(*table.inspect.files()["file_path"].to_pylist())


CASES: Sequence[Case] = (
    Case("files", file_table, read_file_table, "tenure.spark.sinks.files.log:FileLog.append"),
    Case(
        "postgres",
        postgres,
        read_postgres,
        "tenure.spark.sinks.postgres.sink:PostgresSink._commit",
        postgres_at,
    ),
    Case("delta", delta, read_delta, "tenure.spark.sinks.delta.sink:DeltaSink._append"),
    Case("delta-merge", merged_delta, read_delta, "tenure.spark.sinks.delta.sink:DeltaSink._merge_rows"),
    Case("iceberg", iceberg, read_iceberg, "tenure.spark.sinks.iceberg.sink:IcebergSink._publish"),
    Case("small-delta", small_delta, read_small_delta, "tenure.buffer.ingest.delta:ArrowDeltaSink._append"),
    Case("small-iceberg", small_iceberg, read_small_iceberg, "tenure.spark.sinks.iceberg.small:SmallIceberg._append"),
    Case("topic", topic_sink, topic_read, COMMITS, topic_at),
)


def known() -> list[Case]:
    """The cases that this Spark has a connector for, or those that ``TENURE_CRASH_SINKS`` names."""
    named = os.environ.get("TENURE_CRASH_SINKS", "").split()
    return [case for case in CASES if case.needs() is not None and (not named or case.name in named)]
