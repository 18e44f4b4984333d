"""Reading a range by Python tasks: for stores that the JVM cannot reach, with the store's own checks of each batch.

A task gets a share of the range, consecutive batches of about the same size in sum, fetches the next while Spark takes
the one before, and yields Arrow. It opens the store itself: no connection is sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenure.buffer.batch.fetch import FetchHandle
from tenure.buffer.batch.format import Descriptor
from tenure.spark.jobs.plan import Planned, balance
from tenure.spark.reader.columns import spark_schema, to_arrow
from tenure.spark.reader.prefetch import prefetch
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Fetch", "read_with_python"]


def read_with_python(
    spark: SparkSession, url: str, planned: Planned, *, parts: int, settings: ReaderSettings
) -> DataFrame:
    """Return the range's rows; a bad batch shows when it is computed."""
    shares = balance(planned.descriptors, parts)
    work = Fetch(url, shares, settings=settings)

    def fetched(ids: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(ids)

    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(fetched, spark_schema())


class Fetch:
    """The function of a task: the ids of shares come in, their rows go out. It is sent as bytes and settings."""

    def __init__(self, url: str, shares: Sequence[Sequence[Descriptor]], *, settings: ReaderSettings) -> None:
        self._url = url
        self._shares = [msgspec.msgpack.encode(share) for share in shares]
        self._settings = settings

    def __call__(self, ids: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ids:
            for number in batch.column(0).to_pylist():
                yield from self._share(msgspec.msgpack.decode(self._shares[number], type=list[Descriptor]))

    def _share(self, share: list[Descriptor]) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        for _, fetched in prefetch(FetchHandle(self._url, settings=settings.buffer), share):
            yield from to_arrow(fetched.result(), rows_max=settings.rows_max, bytes_max=settings.rows_bytes_max)
