"""Topics of a running server in Spark: the format ``tenure`` to read and write, and `TopicSink` for ingest jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.errors import Invalid
from tenure.spark.topic.sink import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TopicSink", "register"]


def register(spark: SparkSession) -> None:
    """Make the format ``tenure`` known to a session. Raises Invalid (``spark_too_old``) before Spark 4.0."""
    if int(spark.version.partition(".")[0]) < 4:
        message = f"the format tenure needs Spark 4.0 or later, this is {spark.version}: use TopicSink with ingest"
        raise Invalid(message, code="spark_too_old")
    from tenure.spark.topic.source import TopicDataSource

    spark.dataSource.register(TopicDataSource)
