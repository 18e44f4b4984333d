"""Deduplication: keep one row for each key within a range.

A row takes part only if it has a complete key. Two rows without one need not be the same, and NULL agrees with NULL in
a window: without this rule a range's malformed entries, whose fields are all NULL, would count as one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tenure.spark.decode import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tenure.spark.pipeline.file.sections import Deduplicate

__all__ = ["DUPLICATES", "PLACE", "drop_duplicates", "duplicates", "mark_duplicates"]

DUPLICATES: Final = "duplicates"
"""The figure of rows that are left out."""
_DUPLICATE: Final = "_duplicate"
"""The column that is true of such a row; dropped before expectations see the rows."""
PLACE: Final = ("_seq", "_index")


def mark_duplicates(rows: DataFrame, wanted: Deduplicate) -> DataFrame:
    """Return the rows with a column that says whether another row of the same key is kept instead."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    takes_part = _takes_part(rows.columns, wanted.keys)
    order = [f.col(name).desc() if wanted.keep == "last" else f.col(name).asc() for name in PLACE]
    # Rows that take no part are spread by their place: one task would get all of them otherwise.
    spread = [f.when(~takes_part, f.col(name)) for name in PLACE]
    rank = f.row_number().over(Window.partitionBy(*wanted.keys, *spread).orderBy(*order))
    return rows.withColumn(_DUPLICATE, takes_part & (rank > 1))


def duplicates() -> dict[str, Column]:
    """Return what is counted of marked rows."""
    from pyspark.sql import functions as f

    return {DUPLICATES: f.count_if(_DUPLICATE)}


def drop_duplicates(marked: DataFrame) -> DataFrame:
    """Return the rows that are kept."""
    from pyspark.sql import functions as f

    return marked.where(~f.col(_DUPLICATE)).drop(_DUPLICATE)


def _takes_part(columns: Sequence[str], keys: Sequence[str]) -> Column:
    """Return whether a row has a complete key, and was decoded."""
    from pyspark.sql import functions as f

    known = f.lit(True)
    for key in keys:
        known &= f.col(key).isNotNull()
    return known & f.col(MALFORMED).isNull() if MALFORMED in columns else known
