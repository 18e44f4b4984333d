"""Count of the rows that a write is given, made by the write itself: to be held against what the table has of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tenure.spark.jobs.counts import ROWS, answer_of, can_observe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["count_given"]


def count_given(frame: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """Return the rows to write, and a function that tells after it how many there were; None where Spark does not.

    Nothing lies between the count and the write, in one stage of Spark's, so each task that succeeded counts once.
    Spark Connect before 4.0 has no answer.
    """
    if not can_observe(frame):
        return frame, lambda: None
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()

    def count() -> int | None:
        with suppress(TimeoutError):
            rows = answer_of(observation).get(ROWS)
            return None if rows is None else int(rows)
        return None

    return frame.observe(observation, f.count(f.lit(1)).alias(ROWS)), count
