"""Dates and timestamps that Spark has and PostgreSQL has not: those before 4713 BC, and dates after the year 5874897.

A producer that sends milliseconds where seconds are meant makes such times of usual ones. Nested values go to
PostgreSQL as JSON, which holds every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.spark.sinks.arguments import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["holds_foreign_time"]

_FIRST_DAY: Final = -2_440_550
"""The first of January 4713 BC, in days since 1970."""
_END_DAY: Final = 2_145_042_906
"""The first of January 5874898."""
_FIRST_US: Final = _FIRST_DAY * 86_400 * 1_000_000


def holds_foreign_time(rows: DataFrame) -> Column:
    """Return whether a row has a date or a timestamp that PostgreSQL cannot store."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for field in rows.schema.fields:
        column, kind = quote_name(field.name), field.dataType.simpleString()
        if kind == "date":
            day = f"unix_date({column})"
            is_foreign = f.expr(f"{day} < {_FIRST_DAY}L OR {day} >= {_END_DAY}L")
        elif kind.startswith("timestamp"):
            is_foreign = f.expr(f"unix_micros(cast({column} AS timestamp)) < {_FIRST_US}L")
        else:
            continue
        found = found | f.coalesce(is_foreign, f.lit(False))
    return found
