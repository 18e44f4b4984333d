"""Listing a range's files, which Spark does when it is told of them: in a job with a task per path, above 32 paths.

A task that lists one path costs more than the path. The number of tasks is a setting of the session and no option of
the read, so it is set around it. Spark Connect reads the setting later, and lists as it always does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["listed_in"]

_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_setting = threading.Lock()
"""Two reads at once would each take the other's number for the session's own."""


@contextmanager
def listed_in(spark: SparkSession, tasks: int) -> Iterator[None]:
    """Let Spark list paths in at most so many tasks; the session has its own setting again at the end."""
    with _setting:
        before = spark.conf.get(_TASKS, None)
        spark.conf.set(_TASKS, str(tasks))
        try:
            yield
        finally:
            spark.conf.unset(_TASKS) if before is None else spark.conf.set(_TASKS, before)
