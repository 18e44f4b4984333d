"""Compaction of a buffer: its raw entries in well-sized Parquet files, by day or hour, each entry once.

A range is cut into as many shares as files of the wanted size fit into it: consecutive batches of about the same bytes.
Each share is one task's, and so one file, or one more where a day ends within it. Batches and files are both Parquet
with zstd, so the bytes of a batch predict the bytes of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec

from tenure.buffer.batch.format import Descriptor
from tenure.buffer.ingest.sink import Commit
from tenure.buffer.inspect import entries
from tenure.errors import Invalid
from tenure.objects.background import background
from tenure.spark.jobs.ingest import ingest
from tenure.spark.jobs.plan import Limits, balance
from tenure.spark.jobs.range_writer import OnRange, Summary
from tenure.spark.reader.reader import ReaderName
from tenure.spark.sinks.files.log import FileLog
from tenure.spark.sinks.files.table import FileTable
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.protocol import Needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["GROUP", "By", "CompactTable", "Compacted", "compact"]

By = Literal["day", "hour"]
GROUP: Final = "compact"
_FILE_BYTES: Final = 128 << 20
_FILE_BYTES_MIN: Final = 1 << 20
_FILES_MAX: Final = 64
"""Files of one range: each is a branch of an expression, and a range's rows are shuffled at once."""
_PARTS: Final = {
    "day": "CAST(date_add(DATE'1970-01-01', CAST(floor(unix_millis(ingestion_time) / 86400000) AS INT)) AS STRING)",
    "hour": "lpad(CAST(pmod(floor(unix_millis(ingestion_time) / 3600000), 24) AS STRING), 2, '0')",
}
"""In UTC, for any time zone of the session."""
_KEYS_TRIED: Final = 20


class Compacted(msgspec.Struct, frozen=True):
    """The result of a run; ``files`` and ``files_bytes`` are those it added."""

    summary: Summary
    files: int
    files_bytes: int


class CompactTable:
    """A file table that lays out each range in files of about ``file_bytes``, in directories by day or by hour.

    Its columns are those of the buffer, ``seq, index, ingestion_time, metadata, entry``, and the one it is partitioned
    by. Raises Invalid for a place that cannot be a table, and for a size below a MiB.
    """

    schema_version: int = 1

    def __init__(
        self, buffer_url: str, where: str | Path, *, by: By = "day", file_bytes: int = _FILE_BYTES, name: str = GROUP
    ) -> None:
        if by not in get_args(By):
            raise Invalid(f"files are laid out by day or by hour, not by {by!r}")
        if file_bytes < _FILE_BYTES_MIN:
            raise Invalid(f"a file of {file_bytes:,} bytes is not well-sized: ask for {_FILE_BYTES_MIN:,} or more")
        self.name = name
        self._buffer_url = buffer_url
        self._by, self._file_bytes = by, file_bytes
        self._table = FileTable(where, name=name, partition_by=(by,))
        self._place = Place(where)

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return the file table's needs."""
        return self._table.needs(spark_version)

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the file table's last commit."""
        return self._table.last_committed(spark, buffer)

    def write(self, frame: DataFrame, commit: Commit) -> None:
        """Store the range's rows, in few files. Raises as the file table does."""
        batches = background().run(_descriptors(self._buffer_url, commit.low, commit.high))
        shares = balance(batches, min(_FILES_MAX, max(1, round(sum(b.bytes for b in batches) / self._file_bytes))))
        self._table.write(_lay_out(frame, shares, by=self._by), commit)

    def sizes(self) -> list[int]:
        """Return the bytes of each committed file. Raises Corrupt for a damaged log."""
        state = background().run(FileLog(self._place.store(), self._place.spark_url).read())
        return [line.size for line in state.files]


def compact(
    spark: SparkSession,
    buffer_url: str,
    where: str | Path,
    *,
    group: str = GROUP,
    by: By = "day",
    file_bytes: int = _FILE_BYTES,
    reader: ReaderName = "auto",
    limits: Limits | None = None,
    on_range: OnRange | None = None,
) -> Compacted:
    """Bring everything that the buffer holds for the group into a table of well-sized files, and return.

    The group has the table for its sink, so each entry is there once after any crash. Raises as ``ingest`` does.
    """
    table = CompactTable(buffer_url, where, by=by, file_bytes=file_bytes)
    limits = limits or Limits(
        entries_max=100_000_000,
        bytes_max=min(_FILES_MAX * file_bytes, max(Limits().bytes_max, 8 * file_bytes)),
        batches_max=16_384,
    )
    before = table.sizes()
    summary = ingest(spark, buffer_url, table, group=group, reader=reader, limits=limits, on_range=on_range)
    after = table.sizes()
    return Compacted(summary, len(after) - len(before), sum(after) - sum(before))


async def _descriptors(url: str, low: int, high: int) -> list[Descriptor]:
    return [descriptor async for descriptor in entries(url, low, high + 1)]


def _lay_out(frame: DataFrame, shares: Sequence[Sequence[Descriptor]], *, by: By) -> DataFrame:
    """Return the rows in one Spark partition per share, in the order of the buffer."""
    from pyspark.sql import functions as f

    day = f.expr(_PARTS["day"])
    frame = frame.withColumn(by, day if by == "day" else f.concat(day, f.lit("T"), f.expr(_PARTS["hour"])))
    if len(shares) < 2:
        return frame.coalesce(1).sortWithinPartitions(by, "seq", "index")
    keys = _keys(frame.sparkSession, len(shares))
    key = f.lit(keys[-1])
    for share, value in zip(reversed(shares[:-1]), reversed(keys[:-1]), strict=True):
        key = f.when(f.col("seq") <= share[-1].seq, f.lit(value)).otherwise(key)
    return frame.repartition(len(shares), key.cast("long")).sortWithinPartitions(by, "seq", "index")


def _keys(spark: SparkSession, count: int) -> list[int]:
    """Return for each of ``count`` partitions a number that Spark hashes into it, asked of Spark itself.

    A range partitioning would do too, but reads everything twice to find out what is known here.
    """
    places = spark.sql(
        f"SELECT pmod(hash(id), {count}) AS place, min(id) AS id FROM range({count * _KEYS_TRIED}) GROUP BY 1"
    )
    found = {row["place"]: row["id"] for row in places.collect()}
    return [int(found.get(place, place)) for place in range(count)]
