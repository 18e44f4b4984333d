"""The formats that a session can be told of: ``tenure-buffer`` for buffers, ``tenure`` for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``tenure`` (from Spark 4.0 on) and ``tenure-buffer`` (from 4.2 on) known to the session.

    Raises Invalid (``spark_too_old``) where it can have neither. Below 4.2 Python's streaming sources can neither be
    limited nor drained, so there a buffer is read by ``ingest``, which runs on 3.5 and later.
    """
    major, minor = (int(part) for part in spark.version.split(".")[:2])
    if major < 4:
        raise Invalid(
            f"formats written in Python need Spark 4.0 or later, and this is {spark.version}: use tenure.spark.ingest, "
            "with TopicSink for topics",
            code="spark_too_old",
        )
    from tenure.spark.topic.source import TopicDataSource

    spark.dataSource.register(TopicDataSource)
    if (major, minor) >= (4, 2):
        from tenure.spark.source import BufferSource

        spark.dataSource.register(BufferSource)
