"""Counting rows while they are written, without reading them again.

Spark counts while it writes (`observe`). Where rows are needed more than once, they are persisted for the time of a
range, and counted there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Counts", "count_observed", "count_persisted"]

Counts = Callable[[], dict[str, int]]
"""Returns the figures by name; empty where they are not available."""

_FIGURES_WITHIN_S: Final = 10


def count_persisted(rows: DataFrame, figures: dict[str, Column], held: list[DataFrame]) -> tuple[DataFrame, Counts]:
    """Return the rows, persisted and added to ``held`` for the caller to unpersist; asking for figures reads them."""
    persisted = rows.persist()
    held.append(persisted)
    found: dict[str, int] = {}

    def counts() -> dict[str, int]:
        if not found:
            first = persisted.agg(*[column.alias(name) for name, column in figures.items()]).first()
            assert first is not None
            found.update({name: int(value or 0) for name, value in first.asDict().items()})
        return found

    return persisted, counts


def count_observed(
    rows: DataFrame, figures: dict[str, Column], held: list[DataFrame], *, through_views: bool = False
) -> tuple[DataFrame, Counts]:
    """Return the rows, counted by the first action that reads them; ask for figures after it.

    Where Spark would not report the figures, the rows are persisted. ``through_views`` says that queries over views lie
    between them and the action.
    """
    if _cannot_observe(rows, through_views=through_views):
        return count_persisted(rows, figures, held)
    from pyspark.sql import Observation

    observation = Observation()
    return (
        rows.observe(observation, *[column.alias(name) for name, column in figures.items()]),
        lambda: _wait_for(observation),
    )


def _cannot_observe(rows: DataFrame, *, through_views: bool) -> bool:
    """Return whether an observation has no answer.

    Through Spark Connect before 4.0 none has, and later none of what lies behind a view, which the client does not look
    into.
    """
    connected = type(rows).__module__.startswith("pyspark.sql.connect")
    return connected and (through_views or rows.sparkSession.version.startswith("3."))


def _wait_for(observation: Any) -> dict[str, int]:
    """Return what was observed. Spark waits for ever where no action came, so another thread does the waiting."""
    found: dict[str, int] = {}

    def ask() -> None:
        found.update({name: int(value or 0) for name, value in observation.get.items()})

    asking = threading.Thread(target=ask, name="tenure-observation", daemon=True)
    asking.start()
    asking.join(_FIGURES_WITHIN_S)
    return dict(found)
