"""Settings of a session for one write at a time.

Delta and Iceberg take the identity of a MERGE from the session, not from the statement. A session has one set of
settings for all of its threads, so a session writes one thing at a time: writes of Tenure wait for each other here, and
a thread that writes to the same table through the same session by other means has to keep away meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session_conf"]

_one_at_a_time = threading.RLock()


@contextmanager
def session_conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings for a block, and restore the old ones in any case.

    Without any settings, it only waits until no other thread has set some.
    """
    with _one_at_a_time:
        before = {key: spark.conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)
