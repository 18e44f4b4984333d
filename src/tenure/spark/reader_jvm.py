"""Reading a range by Spark itself: batches are plain Parquet, which the JVM reads without Python.

What the files do not say comes from the driver, by a broadcast join with the file's name: the sequence, and the calls'
times and metadata, of which each row picks its own by its ``range``. Page checksums are verified by the reader; size,
identity and number of rows by the driver, on the footers.

Expressions are SQL text, which reads shorter than columns built part by part in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from tenure.buffer.batch import Descriptor, Range
from tenure.buffer.store import ObjectStore
from tenure.spark.columns import RAW
from tenure.spark.footers import read_footers
from tenure.spark.plan import Planned
from tenure.spark.reader_settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["jvm_reaches", "jvm_root", "read_with_jvm"]

_FILE_SCHEMA = "entry binary, range int"
_CALLS_SCHEMA = "known string, seq bigint, times array<bigint>, metadata array<binary>"
_CALLS_ARROW = pa.schema(
    [
        ("known", pa.string()),
        ("seq", pa.int64()),
        ("times", pa.list_(pa.int64())),
        ("metadata", pa.list_(pa.binary())),
    ]
)
_PLACED = ("entry", "range", "_metadata.file_name AS file_name", "_metadata.row_index AS index")
# The join is by a bigint; two names of one hash, or none, end in the error below.
_SAME_HASH = "xxhash64(file_name) = xxhash64(known)"
# A file without its row here would be a mistake of ours; an inner join would hide it, and its entries.
_SEQ = "if(known <=> file_name, seq, CAST(raise_error(concat('no batch of the range: ', file_name)) AS BIGINT))"
_ROWS = {
    "seq": _SEQ,
    "index": "index",
    "ingestion_time": "timestamp_millis(times[range])",
    "metadata": "metadata[range]",
    "entry": "entry",
}
_GLOB = frozenset("*?[]{}\\")
_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs"}
# Whatever the session says: a batch that is missing or damaged is an error, never less data.
_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
}


def jvm_root(url: str) -> str | None:
    """The buffer's address as Hadoop writes it, or None where Spark has no name for it."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or _GLOB & set(path := unquote(parts.path).rstrip("/")):
        return None
    return f"{_SCHEMES[parts.scheme]}://{'' if parts.scheme == 'file' else parts.netloc}{path}"


def jvm_reaches(spark: SparkSession, root: str, descriptor: Descriptor) -> bool:
    """Whether a task of this session can read the batch, by having one read it."""
    try:
        rows = _files(spark, root, [descriptor]).select("range").limit(1).collect()
    except Exception:  # no file system for the scheme, no key, no such bucket there, or the batch itself is bad
        return False
    return len(rows) == 1


def read_with_jvm(
    spark: SparkSession, url: str | ObjectStore, root: str, planned: Planned, *, settings: ReaderSettings
) -> DataFrame:
    """The range's rows. Raises as ``read_footers`` does; what is wrong with the pages shows when it is computed."""
    from pyspark.sql import functions as F  # noqa: N812

    calls = _calls(spark, planned, read_footers(url, planned.descriptors, settings=settings))
    placed = _files(spark, root, planned.descriptors).selectExpr(*_PLACED)
    joined = placed.join(F.broadcast(calls), F.expr(_SAME_HASH), "left")
    return joined.selectExpr(*(f"{_ROWS[name]} AS {name}" for name in RAW))


def _files(spark: SparkSession, root: str, descriptors: Sequence[Descriptor]) -> DataFrame:
    paths = [f"{root}/{descriptor.location}" for descriptor in descriptors]
    return spark.read.schema(_FILE_SCHEMA).options(**_OPTIONS).parquet(*paths)


def _calls(spark: SparkSession, planned: Planned, ranges: list[list[Range]]) -> DataFrame:
    """What the driver knows of each file, one row each."""
    import pyspark

    names = [descriptor.location.rpartition("/")[2] for descriptor in planned.descriptors]
    sequences = [descriptor.seq for descriptor in planned.descriptors]
    times = [[range_.ingested_ms for range_ in calls] for calls in ranges]
    if int(pyspark.__version__.partition(".")[0]) >= 4:  # Arrow becomes part of the plan, and costs no job
        metadata = [[range_.metadata for range_ in calls] for calls in ranges]
        return spark.createDataFrame(pa.table([names, sequences, times, metadata], schema=_CALLS_ARROW))
    rows = [
        (name, seq, at, [bytearray(range_.metadata) for range_ in calls])
        for name, seq, at, calls in zip(names, sequences, times, ranges, strict=True)
    ]
    return spark.createDataFrame(rows, _CALLS_SCHEMA, verifySchema=False)
