"""Compaction of a file table by Spark: of a pipeline's table, of its side tables, of a compacted buffer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.spark.jobs.causes import is_of_spark, job_error, transient_error
from tenure.spark.sinks.files.compaction import FileCompaction
from tenure.spark.sinks.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CompactedTable", "compact_table"]

_FILE_BYTES: Final = 128 << 20
_KEEP_MS: Final = 86_400_000
_ORDERS: Final = (("seq", "index"), ("_seq", "_index"))
"""Columns with a row's place in its buffer."""


class CompactedTable(msgspec.Struct, frozen=True):
    """The number of files that were replaced, and by how many."""

    files_before: int
    files_after: int


def compact_table(
    spark: SparkSession,
    where: str | Path,
    *,
    file_bytes: int = _FILE_BYTES,
    files_min: int = 8,
    keep_ms: int = _KEEP_MS,
) -> CompactedTable:
    """Rewrite the small files of the file table at ``where`` as files of up to ``file_bytes``, partition by partition.

    Each row stays there once, after any crash and with concurrent writers. Replaced files are removed by the first run
    that is ``keep_ms`` later. Raises Invalid for a place that has no table, Corrupt for a damaged log or file,
    Overloaded (``table_busy``, ``disk_full``) where the table refuses for now, Conflict (``spark_failed``).
    """
    rewriter = _SparkRewriter(spark)
    compaction = FileCompaction(Place(where), rewriter, file_bytes=file_bytes, files_min=files_min, keep_ms=keep_ms)
    try:
        return CompactedTable(*compaction.run())
    except Exception as error:
        named = (job_error if is_of_spark(error) else transient_error)(error, "the files were not compacted")
        if named is None:
            raise
        raise named from error


class _SparkRewriter:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def rewrite(self, paths: Sequence[str], folder: str) -> None:
        rows = self._read(paths).coalesce(1)
        for order in _ORDERS:
            if set(order) <= set(rows.columns):
                rows = rows.sortWithinPartitions(*order)
        writer = rows.write.option("mapreduce.fileoutputcommitter.algorithm.version", "1")
        writer.option("compression", "zstd").mode("append").parquet(folder)

    def count(self, paths: Sequence[str]) -> int:
        return self._read(paths).count()

    def _read(self, paths: Sequence[str]) -> DataFrame:
        """Return the rows of files. A missing or damaged file is an error with any settings of the session."""
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "true"}
        return self._spark.read.options(**strict).parquet(*paths)
