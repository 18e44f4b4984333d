"""Rows that a pipeline sets aside, in columns that do not depend on its schema or steps.

``row`` is for people: the row as JSON, or the beginning of a text that could not be decoded. ``entry`` is for a replay:
the bytes as produced. It is read again from the range, and only for the rows that are set aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.spark.decode import MALFORMED
from tenure.spark.pipeline.rows.expectations import FAILED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["quarantine_rows"]

_PLACE: Final = {"seq": "long", "index": "long", "ingestion_time": "timestamp"}
_KEYS: Final = ["seq", "index"]
_ROWS_PER_FILE: Final = 100_000


def quarantine_rows(raw: DataFrame, entries: DataFrame | None, aside: DataFrame | None, *, count: int) -> DataFrame:
    """Return the ``count`` rows for the quarantine; at least one of the two sources is given.

    They are the malformed ones of ``entries``, and those set ``aside`` by expectations.
    """
    parts = [] if entries is None else [_malformed(entries)]
    parts += [] if aside is None else [_failing(aside)]
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return _with_entries(rows, raw).repartition(max(1, -(-count // _ROWS_PER_FILE)))


def _malformed(entries: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    place = [f.col(f"_{name}").cast(kind).alias(name) for name, kind in _PLACE.items()]
    those = entries.where(f.col(MALFORMED).isNotNull())
    return those.select(*place, f.lit("malformed").alias("reason"), f.col(MALFORMED).alias("row"))


def _failing(aside: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    known = [name for name in aside.columns if name != FAILED]
    place = [
        (f.col(f"_{name}") if f"_{name}" in known else f.lit(None)).cast(kind).alias(name)
        for name, kind in _PLACE.items()
    ]
    row = f.to_json(f.struct(*[f.col(f"`{name}`") for name in known])).alias("row")
    return aside.select(*place, f.concat_ws(", ", f.col(FAILED)).alias("reason"), row)


def _with_entries(rows: DataFrame, raw: DataFrame) -> DataFrame:
    """Return the rows with their entries, null where a step left out a row's place.

    The range's entries may be large: only those of the rows, by places that are sent to every task, are moved.
    """
    from pyspark.sql import functions as f

    places = rows.select(*_KEYS).distinct()
    wanted = raw.join(f.broadcast(places), _KEYS, "left_semi").select(*_KEYS, "entry")
    return rows.join(wanted, _KEYS, "left").select(*_PLACE, "reason", "row", "entry")
