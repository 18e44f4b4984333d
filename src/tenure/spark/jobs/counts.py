"""Counting rows while they are written, without reading them again.

Spark counts while it writes (`observe`), by accumulators, and these are not always right: a stage that runs again after
an executor was lost is counted twice, a step with a limit ends the reading early, and the answer comes from the first
action that reads the rows, whatever part of them that is. So every observed count has the numbers of the partitions
that were counted, one for each time: where they were not counted equally often, the count is not known. What still
contradicts another count is counted once more by a query of its own (`Counting.recount`), whose result is exact: only
where a run would fail otherwise, or a step does not read all that it gets.

Where rows are needed more than once, they are persisted for the time of a range, and counted there: this is exact too.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ROWS", "Counting", "Found", "answer_of", "can_observe", "count_now", "counted_once"]

log = logging.getLogger("tenure.spark")

ROWS: Final = "rows"
"""The figure that every place has."""
_NUMBER: Final = "__tenure_row"
_PARTITIONS: Final = "__tenure_partitions"
# Spark numbers rows by partition and place in it, with 33 bits for the place.
_PARTITION_OF_FIRST: Final = f"if({_NUMBER} & 8589934591 = 0, string(shiftright({_NUMBER}, 33)), NULL)"
_FIGURES_WITHIN_S: Final = 10

Found = Mapping[str, int]
"""Figures by name."""


class _Place(NamedTuple):
    """A place of a plan at which rows are counted."""

    rows: DataFrame
    figures: dict[str, Column]
    ask: Callable[[], Found | None]
    is_exact: bool


class Counting:
    """The counts of one range, taken at named places of its plan. Persisted rows are added to ``held``."""

    def __init__(self, held: list[DataFrame]) -> None:
        self._held = held
        self._places: dict[str, _Place] = {}
        self._found: dict[str, Found | None] = {}

    def observe(
        self, name: str, rows: DataFrame, figures: dict[str, Column] | None = None, *, through_views: bool = False
    ) -> DataFrame:
        """Return the rows, counted by the first action that reads them. They are not counted where Spark cannot."""
        if not can_observe(rows, through_views=through_views):
            return rows
        observed, ask = _observe(rows, figures or {})
        self._places[name] = _Place(rows, figures or {}, ask, is_exact=False)
        return observed

    def persist(self, name: str, rows: DataFrame, figures: dict[str, Column] | None = None) -> DataFrame:
        """Return the rows, persisted; the first question for their count reads them."""
        persisted = rows.persist()
        self._held.append(persisted)
        self._places[name] = _Place(
            persisted, figures or {}, lambda: count_now(persisted, figures or {}), is_exact=True
        )
        return persisted

    def found(self, name: str) -> Found | None:
        """Return the figures of a place; None where they are not known. Ask after the rows were read."""
        if name not in self._found:
            place = self._places.get(name)
            try:
                self._found[name] = None if place is None else place.ask()
            except TimeoutError:  # one action answers all of them, or none
                self.distrust()
        return self._found[name]

    def replace(self, name: str, figures: Found) -> None:
        """Replace figures of a place by exact ones."""
        self._found[name] = {**(self.found(name) or {}), **figures}

    def distrust(self) -> None:
        """Forget what was observed: it is another action's."""
        self._found |= {name: None for name, place in self._places.items() if not place.is_exact}

    def recount(self, only: str | None = None) -> None:
        """Count again what was observed, by queries of their own; what they cannot count is not known."""
        for name, place in self._places.items():
            if place.is_exact or only not in (None, name):
                continue
            try:
                self._found[name] = count_now(place.rows, place.figures)
            except Exception as error:  # of Spark's, for any reason: the rows are written, and this only counts them
                log.warning("the rows of %s could not be counted again: %s", name, str(error).partition("\n")[0])
                self._found[name] = None


def count_now(rows: DataFrame, figures: dict[str, Column]) -> dict[str, int]:
    """Return the figures of these rows, which are read for them."""
    first = rows.agg(*_columns(figures)).first()
    assert first is not None
    return {name: int(value or 0) for name, value in first.asDict().items()}


def can_observe(rows: DataFrame, *, through_views: bool = False) -> bool:
    """Return whether an observation has an answer.

    Through Spark Connect before 4.0 none has, and later none of what lies behind a view, which the client does not look
    into. ``through_views`` says that queries over views lie between the rows and the action.
    """
    connected = type(rows).__module__.startswith("pyspark.sql.connect")
    return not (connected and (through_views or rows.sparkSession.version.startswith("3.")))


def counted_once(figures: Found, partitions: Sequence[int]) -> dict[str, int] | None:
    """Return the figures as if each partition was counted once; None where that does not follow from them.

    A plan that Spark runs twice, as for a sort's samples, counts every partition twice.
    """
    times = set(Counter(partitions).values()) or {1}
    if len(times) > 1:
        return None
    (often,) = times
    if any(count % often for count in figures.values()):
        return None
    return {name: count // often for name, count in figures.items()}


def _observe(rows: DataFrame, figures: dict[str, Column]) -> tuple[DataFrame, Callable[[], Found | None]]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()
    numbered = rows.withColumn(_NUMBER, f.monotonically_increasing_id())
    # As text, since an array reaches Python in another form from each version of Spark.
    partitions = f.concat_ws(",", f.collect_list(f.expr(_PARTITION_OF_FIRST))).alias(_PARTITIONS)
    observed = numbered.observe(observation, *_columns(figures), partitions).drop(_NUMBER)
    return observed, lambda: _found_of(answer_of(observation))


def _columns(figures: dict[str, Column]) -> list[Column]:
    from pyspark.sql import functions as f

    return [column.alias(name) for name, column in ({ROWS: f.count(f.lit(1))} | figures).items()]


def answer_of(observation: Any) -> dict[str, Any]:
    """Return what was observed; empty where the plan has no observation left. Raises TimeoutError where no answer came.

    Spark waits for ever for one, also where its queue has lost the event, so another thread does the waiting.
    """
    found: dict[str, Any] = {}

    def ask() -> None:
        with suppress(Exception):  # a plan that Spark simplified to nothing has no observation in it
            found.update(observation.get)

    asking = threading.Thread(target=ask, name="tenure-observation", daemon=True)
    asking.start()
    asking.join(_FIGURES_WITHIN_S)
    if asking.is_alive():
        raise TimeoutError
    return found


def _found_of(answer: dict[str, Any]) -> dict[str, int] | None:
    if _PARTITIONS not in answer:
        return None
    partitions = [int(number) for number in str(answer.pop(_PARTITIONS)).split(",") if number]
    return counted_once({name: int(value or 0) for name, value in answer.items()}, partitions)
