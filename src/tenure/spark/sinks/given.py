"""Count of the rows that a write is given, made by the write itself: to be held against what the table has of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["count_given"]

_WITHIN_S: Final = 10


def count_given(frame: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """Return the rows to write, and a function that tells after it how many there were; None where Spark does not.

    Nothing lies between the count and the write, in one stage of Spark's, so each task that succeeded counts once.
    Spark Connect before 4.0 has no answer.
    """
    if type(frame).__module__.startswith("pyspark.sql.connect") and frame.sparkSession.version.startswith("3."):
        return frame, lambda: None
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation, found = Observation(), list[int]()

    def ask() -> None:
        found.append(int(observation.get["rows"]))

    def count() -> int | None:
        # Spark answers by way of a queue that may lose events, and then it waits for ever.
        asking = threading.Thread(target=ask, name="tenure-count", daemon=True)
        asking.start()
        asking.join(_WITHIN_S)
        return found[0] if found else None

    return frame.observe(observation, f.count(f.lit(1)).alias("rows")), count
