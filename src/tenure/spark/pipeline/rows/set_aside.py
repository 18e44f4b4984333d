"""Entries that a pipeline sets aside, in columns that do not depend on its schema or steps.

One record is one entry, whatever the number of its rows, as a replay produces entries: ``entry`` has the bytes as
produced, read again from the range, and only for those that are set aside. ``row`` is for people: a row that fails, as
JSON, or the beginning of a text that could not be decoded. Where the steps left out which entry a row is of, each row
is a record of its own, without its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tenure.spark.decode import MALFORMED
from tenure.spark.pipeline.rows.deduplicate import PLACE
from tenure.spark.pipeline.rows.expectations import ASIDE, FAILED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["RECORDS", "quarantine_rows", "records_of"]

RECORDS: Final = "records"
"""The figure of entries, and of rows without a place, that are set aside."""

_PLACE: Final = {"seq": "long", "index": "long", "ingestion_time": "timestamp"}
_KEYS: Final = ["seq", "index"]
_ALONE: Final = "__tenure_alone"
_ROWS_PER_FILE: Final = 100_000


def records_of(rows: DataFrame) -> dict[str, Column]:
    """Return the number of records that marked rows make, to be counted of them."""
    from pyspark.sql import functions as f

    place = f.when(f.col(ASIDE) & _has_place(rows), f.struct(*PLACE))
    return {RECORDS: f.count_distinct(place) + f.count_if(f.col(ASIDE) & ~_has_place(rows))}


def quarantine_rows(
    raw: DataFrame, entries: DataFrame | None, aside: DataFrame | None, *, names: Sequence[str], count: int
) -> DataFrame:
    """Return the ``count`` records for the quarantine; at least one of the two sources is given.

    They are the malformed ones of ``entries``, and those set ``aside`` by expectations of these ``names``.
    """
    parts = [] if entries is None else [_malformed(entries)]
    parts += [] if aside is None else [_failing(aside, names)]
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return _with_entries(rows, raw).repartition(max(1, -(-count // _ROWS_PER_FILE)))


def _malformed(entries: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    place = [f.col(f"_{name}").cast(kind).alias(name) for name, kind in _PLACE.items()]
    those = entries.where(f.col(MALFORMED).isNotNull())
    rows = f.lit(1).cast("long").alias("rows")
    return those.select(*place, f.lit("malformed").alias("reason"), f.col(MALFORMED).alias("row"), rows)


def _failing(aside: DataFrame, names: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f

    known = [name for name in aside.columns if name not in (FAILED, ASIDE)]
    place = [
        (f.col(f"_{name}") if f"_{name}" in known else f.lit(None)).cast(kind).alias(name)
        for name, kind in _PLACE.items()
    ]
    fails = f.size(FAILED) > 0
    row = f.when(fails, f.to_json(f.struct(*[f.col(f"`{name}`") for name in known]))).alias("row")
    alone = f.when(~_has_place(aside), f.monotonically_increasing_id()).alias(_ALONE)
    reasons = [f.when(f.max(f.array_contains(FAILED, name)), f.lit(name)) for name in names]
    return (
        aside.select(*place, FAILED, row, alone)
        .groupBy(*_KEYS, _ALONE)
        .agg(
            f.min("ingestion_time").alias("ingestion_time"),
            f.concat_ws(", ", *reasons).alias("reason"),
            f.min("row").alias("row"),
            f.count(f.lit(1)).alias("rows"),
        )
        .drop(_ALONE)
    )


def _has_place(rows: DataFrame) -> Column:
    """Return whether a row shows which entry it is of."""
    from pyspark.sql import functions as f

    known = f.lit(set(PLACE) <= set(rows.columns))
    for name in PLACE:
        if name in rows.columns:
            known &= f.col(name).isNotNull()
    return known


def _with_entries(rows: DataFrame, raw: DataFrame) -> DataFrame:
    """Return the rows with their entries, null where a step left out a row's place.

    The range's entries may be large: only those of the rows, by places that are sent to every task, are moved.
    """
    from pyspark.sql import functions as f

    places = rows.select(*_KEYS).distinct()
    wanted = raw.join(f.broadcast(places), _KEYS, "left_semi").select(*_KEYS, "entry")
    return rows.join(wanted, _KEYS, "left").select(*_PLACE, "reason", "row", "entry", "rows")
