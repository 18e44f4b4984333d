"""A range of the buffer as a DataFrame: read by the JVM where it reaches the store, else by Python tasks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, get_args

from tenure.buffer.batch.fetch import FetchHandle
from tenure.errors import Corrupt, Invalid
from tenure.objects.store import open_store
from tenure.spark.jobs.plan import Planned
from tenure.spark.reader.columns import spark_schema
from tenure.spark.reader.jvm import jvm_reaches, jvm_root, read_with_jvm
from tenure.spark.reader.python import read_with_python
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RangeReader", "ReaderName", "cores_of", "parts_of", "read_range"]


def parts_of(planned: Planned, settings: ReaderSettings, *, cores: int) -> int:
    """Return as many tasks as there is work for, and at most so many per core."""
    opening_bytes = settings.open_bytes * len(planned.descriptors)
    per_core = 1 if planned.bytes < opening_bytes else settings.parts_per_core
    return max(1, min(cores * per_core, (planned.bytes + opening_bytes) // settings.part_bytes_min))


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks this session runs at once, as far as Spark shows it by its default partitions."""
    from pyspark.sql import functions as F  # noqa: N812

    numbered = spark.range(1_000_000).select(F.spark_partition_id().alias("number"))
    return int(numbered.agg(F.max("number").alias("last")).collect()[0]["last"]) + 1


log = logging.getLogger("tenure.spark")

_FOR_PYTHON = frozenset({"calls_too_large", "names_collide"})
"""Codes for which ``auto`` falls back to Python on a range that the JVM reaches."""

ReaderName = Literal["auto", "jvm", "python"]


def read_range(
    spark: SparkSession,
    url: str,
    planned: Planned,
    *,
    reader: ReaderName = "auto",
    parts: int | None = None,
    settings: ReaderSettings | None = None,
) -> DataFrame:
    """Return the rows of a range with the columns of ``reader.columns.RAW``; as ``RangeReader(…).read(planned)``."""
    return RangeReader(spark, url, reader=reader, parts=parts, settings=settings).read(planned)


class RangeReader:
    """A reader of ranges of one buffer in one session; it decides once how to read them.

    ``auto`` lets Python read ranges of small batches. It lets the JVM read all others if the JVM can read the first
    batch of the first of them, and Python otherwise. ``parts`` is the number of tasks; by default it follows from the
    range and the session's cores. Raises Invalid for a buffer that tasks cannot reach, and with ``jvm`` for one that
    the JVM has no file system for.
    """

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        *,
        reader: ReaderName = "auto",
        parts: int | None = None,
        settings: ReaderSettings | None = None,
    ) -> None:
        if reader not in get_args(ReaderName):
            raise Invalid(f"a reader is auto, jvm or python, not {reader!r}")
        if parts is not None and parts < 1:
            raise Invalid(f"parts must be at least 1, not {parts}")
        store = open_store(url)
        if url.startswith("memory:"):
            raise Invalid("a memory store lives in one process: Spark's tasks cannot read it")
        self._spark, self._url, self._store = spark, url, store
        self._settings = settings or ReaderSettings()
        self._parts, self._cores = parts, 0
        self._asked = reader
        self._root = None if reader == "python" else jvm_root(url)
        if reader == "jvm" and self._root is None:
            raise Invalid(f"Spark has no name for {store.url}: let Python read it")
        self._by_jvm = None if reader == "auto" and self._root is not None else self._root is not None

    def read(self, planned: Planned) -> DataFrame:
        """Return the range's rows.

        Raises Corrupt for a batch that shows already that it is gone or damaged, Invalid (``calls_too_large``,
        ``names_collide``) where the JVM is to read a range that it cannot.
        """
        if not planned.descriptors:  # all of them were given up
            return self._spark.createDataFrame([], spark_schema())
        if self._root is None or not self._jvm_reads(self._root, planned):
            return self._with_python(planned)
        try:
            parts = max(self._parts_of(planned), planned.bytes // self._settings.part_bytes_max)
            return read_with_jvm(self._spark, self._store, self._root, planned, parts=parts, settings=self._settings)
        except Invalid as error:
            if self._asked == "jvm" or error.code not in _FOR_PYTHON:
                raise
            log.info("batches %s to %s are read by Python: %s", planned.low, planned.high, error)
            return self._with_python(planned)

    def find_bad_batch(self, error: Exception, planned: Planned) -> Corrupt | None:
        """Return what is wrong with the batch that a failed job names, if that is why it failed.

        Spark's own errors are long and name a file; the store's check of it is short and has the next step.
        """
        text = f"{error} {error.__cause__ or ''}"
        named = [each for each in planned.descriptors if each.location.rpartition("/")[2] in text]
        handle = FetchHandle(self._store, settings=self._settings.buffer)
        for descriptor in named:
            try:
                handle.fetch_blocking(descriptor)
            except Corrupt as found:
                return found
        return None

    def _jvm_reads(self, root: str, planned: Planned) -> bool:
        if self._asked == "auto" and planned.bytes < self._settings.jvm_batch_bytes_min * len(planned.descriptors):
            return False
        if self._by_jvm is None:
            self._by_jvm = jvm_reaches(self._spark, root, planned.descriptors[0])
            log.info("%s is read by %s", self._store.url, "the JVM" if self._by_jvm else "Python")
        return self._by_jvm

    def _with_python(self, planned: Planned) -> DataFrame:
        parts = self._parts_of(planned)
        return read_with_python(self._spark, self._url, planned, parts=parts, settings=self._settings)

    def _parts_of(self, planned: Planned) -> int:
        if self._parts is not None:
            return self._parts
        self._cores = self._cores or cores_of(self._spark)
        return parts_of(planned, self._settings, cores=self._cores)
