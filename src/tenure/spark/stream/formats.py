"""Registration of the formats ``tenure-buffer`` for buffers and ``tenure`` for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["need_streams", "register"]


def register(spark: SparkSession) -> None:
    """Register ``tenure`` (from Spark 4.0 on) and ``tenure-buffer`` (from 4.2 on) with the session.

    Raises Invalid (``spark_too_old``) where it can have neither.
    """
    if _version(spark) < (4, 0):
        raise Invalid(
            f"formats written in Python need Spark 4.0 or later, and this is {spark.version}: use tenure.spark.ingest, "
            "with TopicSink for topics",
            code="spark_too_old",
        )
    from tenure.spark.topic.source import TopicDataSource

    spark.dataSource.register(TopicDataSource)
    if _version(spark) >= (4, 2):
        from tenure.spark.stream.source import BufferSource

        spark.dataSource.register(BufferSource)


def need_streams(spark: SparkSession) -> None:
    """Raise Invalid (``spark_too_old``) for a Spark whose Python sources can neither be limited nor drained."""
    if _version(spark) < (4, 2):
        raise Invalid(
            f"streaming from a buffer needs Spark 4.2 or later, and this is {spark.version}: use tenure.spark.ingest, "
            "which runs on 3.5 and later",
            code="spark_too_old",
        )


def _version(spark: SparkSession) -> tuple[int, int]:
    major, minor, *_ = spark.version.split(".")
    return int(major), int(minor)
