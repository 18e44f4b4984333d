"""The lifecycle events of a report: in a buffer that is still there, or in a table made of one.

A report is no consumer of the buffer: it fences none, and keeps nothing from being collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tenure.errors import Invalid, NotFound
from tenure.spark.report.buckets import ENTRIES_SMALL_MAX
from tenure.spark.report.parse import parse, parse_entries
from tenure.spark.sinks.files.table import FileTable
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.protocol import Needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tenure.buffer.batch.format import Descriptor

__all__ = ["BATCHES_MAX", "BufferEvents", "TableEvents", "find_events"]

BATCHES_MAX: Final = 200_000
"""Batches that one report reads: the driver holds a descriptor of each, about a kilobyte."""
_EXPORTER: Final = "export-"
_LATE_MS: Final = 3_600_000
"""The assumed difference between the clocks of a broker and of the exporter beside it."""


class BufferEvents(msgspec.Struct, frozen=True):
    """The events in a buffer: its batches, by the log that they come from."""

    url: str
    logs: tuple[tuple[Descriptor, ...], ...]

    @property
    def batches(self) -> int:
        return sum(map(len, self.logs))

    @property
    def is_small(self) -> bool:
        """Return whether the report runs with the settings for few events."""
        return sum(batch.entries for batches in self.logs for batch in batches) <= ENTRIES_SMALL_MAX

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return no needs: where the JVM does not reach the buffer, Python reads it."""
        return Needs()

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the parsed rows; ``log`` numbers the brokers that share the buffer."""
        from pyspark.sql import functions as f

        frames = [
            _entries(spark, self.url, batches).withColumn("log", f.lit(number))
            for number, batches in enumerate(self.logs)
        ]
        return parse_entries(reduce(lambda one, other: one.unionByName(other), frames))


class TableEvents(msgspec.Struct, frozen=True):
    """The events in a Parquet table: entries as they were, in a column ``entry``, or decoded, a column a field."""

    url: str
    is_small: bool = False
    """Always False: the size of a table is not known before Spark reads it."""

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return what a session must have to read it: on S3, Hadoop's client."""
        return FileTable(self.url).needs(spark_version) if _is_place(self.url) else Needs()

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the parsed rows.

        Raises NotFound (``no_events``) where there is no such table, Invalid (``report_columns``) for one of something
        else.
        """
        from pyspark.errors import AnalysisException

        try:
            frame = spark.read.parquet(Place(self.url).spark_path("") if _is_place(self.url) else self.url)
            columns = frame.columns
        except AnalysisException as error:
            raise NotFound(f"{self.url} is neither a buffer nor a Parquet table", code="no_events") from error
        return parse_entries(frame) if "entry" in columns else parse(frame)


def find_events(where: str, *, since_ms: int | None = None) -> BufferEvents | TableEvents:
    """Find the events at a path or a URL, before Spark is started.

    Batches that were ingested long before ``since_ms`` are left out. Raises NotFound (``no_events``) where neither a
    buffer nor a table is, or where the buffer holds nothing; Invalid (``report_too_large``) for a buffer of more than
    BATCHES_MAX batches; what the store raises.
    """
    url = where if "://" in where else Path(where).absolute().as_uri()
    directory = _directory(url)
    if directory is not None and not directory.exists():
        raise NotFound(f"{where} is not there: name a buffer or a table of lifecycle events", code="no_events")
    if directory is not None and not (directory / "buffer.json").exists():
        if next(directory.rglob("*.parquet"), None) is None:
            raise NotFound(f"{where} is neither a buffer nor a Parquet table", code="no_events")
        return TableEvents(url)
    if urlsplit(url).scheme not in ("file", "s3", "gs", "az"):
        return TableEvents(url)
    try:
        descriptors = _batches(url, since_ms=since_ms)
    except NotFound as error:
        if error.code != "no_buffer" or directory is not None:
            raise
        return TableEvents(url)
    if not descriptors:
        raise NotFound(
            f"{where} holds no events of that time: is the export running, and does the buffer retain what its groups "
            "have read (tenure buffer set --retain-for)?",
            code="nothing_to_report",
        )
    return BufferEvents(url, _by_log(descriptors))


def _is_place(url: str) -> bool:
    return urlsplit(url).scheme in ("file", "s3", "s3a", "gs")


def _directory(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _batches(url: str, *, since_ms: int | None) -> list[Descriptor]:
    from tenure.objects.background import background

    return background().run(_descriptors(url, since_ms=since_ms))


async def _descriptors(url: str, *, since_ms: int | None) -> list[Descriptor]:
    from tenure.buffer.inspect import entries

    oldest_ms = 0 if since_ms is None else since_ms - _LATE_MS
    found = []
    async for descriptor in entries(url):
        if descriptor.last_ms >= oldest_ms:
            found.append(descriptor)
        if len(found) > BATCHES_MAX:
            raise Invalid(
                f"the buffer holds more than {BATCHES_MAX:,} batches: begin later with --from, or make well-sized "
                "files of them first (tenure compact) and report on those",
                code="report_too_large",
            )
    return found


def _by_log(descriptors: Sequence[Descriptor]) -> tuple[tuple[Descriptor, ...], ...]:
    """Return the batches of each exporter by itself: seqs of a queue are unique in one log, not among brokers."""
    logs: dict[str, list[Descriptor]] = {}
    for descriptor in descriptors:
        producer = descriptor.producer
        logs.setdefault(producer if producer.startswith(_EXPORTER) else "", []).append(descriptor)
    return tuple(tuple(batches) for batches in logs.values())


def _entries(spark: SparkSession, url: str, batches: Sequence[Descriptor]) -> DataFrame:
    """Return the batches' entries alone: so the JVM, where it reaches them, needs no footers first."""
    from tenure.spark.jobs.plan import Planned
    from tenure.spark.reader.jvm import jvm_reaches, jvm_root
    from tenure.spark.reader.reader import read_range

    root = jvm_root(url)
    if root is None or not jvm_reaches(spark, root, batches[0]):
        return read_range(spark, url, Planned.of(batches), reader="python").select("entry")
    options = {"parquet.page.verify-checksum.enabled": "true", "ignoreMissingFiles": "false"}
    paths = [f"{root}/{batch.location}" for batch in batches]
    return spark.read.schema("entry binary").options(**options).parquet(*paths)
