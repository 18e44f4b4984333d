"""In how many tasks a range is read, which is also how many files a table gets of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.spark.jobs.plan import Planned
from tenure.spark.reader.settings import ReaderSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cores_of", "parts_of"]


def parts_of(planned: Planned, settings: ReaderSettings, *, cores: int) -> int:
    """As many tasks as there is work for, and at most so many per core."""
    opening_bytes = settings.open_bytes * len(planned.descriptors)
    per_core = 1 if planned.bytes < opening_bytes else settings.parts_per_core
    return max(1, min(cores * per_core, (planned.bytes + opening_bytes) // settings.part_bytes_min))


def cores_of(spark: SparkSession) -> int:
    """How many tasks this session runs at once, as far as Spark tells: how many it makes where nobody says."""
    from pyspark.sql import functions as F  # noqa: N812

    numbered = spark.range(1_000_000).select(F.spark_partition_id().alias("number"))
    return int(numbered.agg(F.max("number").alias("last")).collect()[0]["last"]) + 1
