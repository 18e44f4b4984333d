"""Reading a range by the JVM: batches are plain Parquet, which Spark reads without Python.

What the files lack comes from the driver, as a constant of the query: the sequence, and the calls' times and metadata,
of which each row picks its own by its file and by its ``range``. The reader verifies page checksums; the driver
verifies size, identity and number of rows, on the footers.

Expressions are SQL text, which reads shorter than columns built part by part in Python.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from tenure.buffer.batch.format import Descriptor, Range
from tenure.errors import Invalid
from tenure.objects.store import ObjectStore
from tenure.spark.jobs.plan import Planned
from tenure.spark.reader.columns import RAW
from tenure.spark.reader.footers import read_footers
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PerfectHash", "jvm_reaches", "jvm_root", "listing_tasks", "read_with_jvm"]


class PerfectHash:
    """A perfect hash: a different number below ``size`` for each of these distinct keys. Other keys get any.

    A key's remainder chooses its bucket, and its quotient the place there; each bucket is just wide enough that no two
    keys meet.
    """

    def __init__(self, keys: Sequence[int]) -> None:
        buckets: list[list[int]] = [[] for _ in keys]
        for key in keys:
            rest, bucket = divmod(key, len(keys))
            buckets[bucket].append(rest)
        self._widths = [_width(bucket) for bucket in buckets]
        *self._starts, self.size = accumulate(self._widths, initial=0)

    def of(self, key: int) -> int:
        """Return the key's number."""
        rest, bucket = divmod(key, len(self._widths))
        return self._starts[bucket] + rest % self._widths[bucket]

    def sql(self, key: str) -> str:
        """Return the hash as an SQL expression, where ``key`` is one that gives a bigint from 0 on."""
        count = len(self._widths)
        start, width = (f"{_array(each)}[CAST({key} % {count} AS INT)]" for each in (self._starts, self._widths))
        return f"CAST({start} + ({key} DIV {count}) % {width} AS INT)"


def _width(bucket: Sequence[int]) -> int:
    """Return the least width that keeps these numbers apart."""
    width = max(len(bucket), 1)
    while len({number % width for number in bucket}) < len(bucket):
        width += 1
    return width


def _array(numbers: Sequence[int]) -> str:
    """Return an array as text, which is parsed faster than an expression per number and becomes a constant."""
    return f"from_json('{list(numbers)}', 'array<int>')"


_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_setting = threading.Lock()
"""A lock, as two concurrent reads would each take the other's number for the session's own."""


@contextmanager
def listing_tasks(spark: SparkSession, tasks: int) -> Iterator[None]:
    """Let Spark list paths in at most so many tasks, and restore the session's own setting at the end."""
    with _setting:
        before = spark.conf.get(_TASKS, None)
        spark.conf.set(_TASKS, str(tasks))
        try:
            yield
        finally:
            spark.conf.unset(_TASKS) if before is None else spark.conf.set(_TASKS, before)


_FILE_SCHEMA = "entry binary, range int"
_CALLS_SCHEMA = "array<struct<key: bigint, seq: bigint, times: array<bigint>, metadata: array<binary>>>"
# What distinguishes the files of a range: their sizes, which cost a row nothing, or else their names.
_SIZE = "_metadata.file_size"
_NAME = "crc32(CAST(_metadata.file_name AS BINARY))"
# A file that is not in the constant would be a bug of ours; a null would hide it.
_UNKNOWN = "CAST(raise_error(concat('no batch of the range: ', file)) AS BIGINT)"
_ROWS = {
    "seq": f"if(calls.key <=> key, calls.seq, {_UNKNOWN})",
    "index": "index",
    "ingestion_time": "timestamp_millis(calls.times[range])",
    "metadata": "calls.metadata[range]",
    "entry": "entry",
}
_GLOB = frozenset("*?[]{}\\")
_SCHEMES = {"file": "file", "s3": "s3a", "gs": "gs"}
# With any settings of the session a batch that is missing or damaged is an error, never less data.
_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
}


class _Calls(msgspec.Struct):
    """One file of a range; in JSON, bytes are base64, which Spark takes for binary."""

    key: int
    seq: int
    times: list[int]
    metadata: list[bytes]


def jvm_root(url: str) -> str | None:
    """Return the buffer's address in Hadoop's form, or None where Spark has no file system for it."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or _GLOB & set(path := unquote(parts.path).rstrip("/")):
        return None
    return f"{_SCHEMES[parts.scheme]}://{'' if parts.scheme == 'file' else parts.netloc}{path}"


def jvm_reaches(spark: SparkSession, root: str, descriptor: Descriptor) -> bool:
    """Return whether a task of this session can read the batch, by having one read it."""
    try:
        rows = _files(spark, root, [descriptor]).select("range").limit(1).collect()
    except Exception:  # no file system for the scheme, no key, no such bucket there, or the batch itself is bad
        return False
    return len(rows) == 1


def read_with_jvm(
    spark: SparkSession, url: str | ObjectStore, root: str, planned: Planned, *, parts: int, settings: ReaderSettings
) -> DataFrame:
    """Return the range's rows, in at most so many tasks: Spark counts 4 MiB for opening a file of any size.

    Raises as ``read_footers`` does, and Invalid (``names_collide``); damaged pages show when it is computed.
    """
    from pyspark.sql import functions as F  # noqa: N812

    key, keys = _keys(planned.descriptors)
    slots = PerfectHash(keys)
    text = _calls(planned, read_footers(url, planned.descriptors, settings=settings), keys, slots)
    calls = F.from_json(F.lit(text), _CALLS_SCHEMA)[F.expr(slots.sql(key))].alias("calls")
    file_columns = (f"{key} AS key", "_metadata.file_name AS file", "_metadata.row_index AS index")
    with listing_tasks(spark, parts):
        files = _files(spark, root, planned.descriptors)
    placed = files.select("entry", "range", *map(F.expr, file_columns), calls)
    return placed.selectExpr(*(f"{_ROWS[name]} AS {name}" for name in RAW)).coalesce(parts)


def _files(spark: SparkSession, root: str, descriptors: Sequence[Descriptor]) -> DataFrame:
    paths = [f"{root}/{descriptor.location}" for descriptor in descriptors]
    return spark.read.schema(_FILE_SCHEMA).options(**_OPTIONS).parquet(*paths)


def _keys(descriptors: Sequence[Descriptor]) -> tuple[str, list[int]]:
    """Return the expression that identifies a row's file, and its values. Raises Invalid (``names_collide``)."""
    sizes = [descriptor.bytes for descriptor in descriptors]
    if len(set(sizes)) == len(sizes):
        return _SIZE, sizes
    names = [zlib.crc32(descriptor.location.rpartition("/")[2].encode()) for descriptor in descriptors]
    if len(set(names)) < len(names):
        raise Invalid(
            "two batches of this range have names of the same checksum: read it with reader='python'",
            code="names_collide",
        )
    return _NAME, names


def _calls(planned: Planned, ranges: Sequence[Sequence[Range]], keys: Sequence[int], slots: PerfectHash) -> str:
    """Return what the driver knows of each file, at its slot."""
    known: list[_Calls | None] = [None] * slots.size
    for descriptor, calls, key in zip(planned.descriptors, ranges, keys, strict=True):
        times, metadata = [call.ingested_ms for call in calls], [call.metadata for call in calls]
        known[slots.of(key)] = _Calls(key, descriptor.seq, times, metadata)
    return msgspec.json.encode(known).decode()
