"""Parse and check exported entries into rows that Spark can count.

A row that is not a lifecycle event is marked by ``is_event`` false and counted; it fails nothing. A row stays a range
here: a thousand jobs claimed together are one row with ``jobs`` 1,000. Jobs that were moved here from another topic, as
dead letters or by a redrive, are ``moved_in`` and not produced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["EVENTS", "JOBS_MAX", "REASON_MAX", "parse", "parse_entries"]

EVENTS: Final = (
    *("produced", "claimed", "begun", "extended", "released", "returned", "expired", "lost"),
    *("acked", "dead_lettered", "redriven", "gap"),
)
JOBS_MAX: Final = 1_000_000
"""Jobs of one row. A row that claims to hold more was not made by an exporter, and would be exploded in memory."""
REASON_MAX: Final = 200
"""Characters of a reason that are kept: it may contain a whole traceback."""
NAME_MAX: Final = 256
_YEAR_9999_MS: Final = 253_402_300_799_000
_SEQ_MAX: Final = 1 << 62
_NEEDED: Final = ("event", "topic", "ts", "runs", "batch", "n")
_TEXTS: Final = {"node": NAME_MAX, "reason": REASON_MAX, "dest": NAME_MAX, "origin": NAME_MAX}
_NUMBERS: Final = ("first_batch", "last_batch")

# Nearly every row is one run: compiled code checks it, and functions over arrays only the others.
_SOUND_RUNS: Final = f"""CASE size(runs)
    WHEN 0 THEN event = 'gap'
    WHEN 2 THEN event <> 'gap' AND get(runs, 0) BETWEEN 0 AND {_SEQ_MAX} AND get(runs, 1) BETWEEN 1 AND {JOBS_MAX}
    ELSE event <> 'gap' AND size(runs) % 2 = 0
        AND forall(sequence(0, size(runs) - 1),
                   i -> get(runs, i) BETWEEN i % 2 AND IF(i % 2 = 0, {_SEQ_MAX}, {JOBS_MAX}))
        AND aggregate(sequence(1, size(runs) - 1, 2), 0L, (sum, i) -> sum + get(runs, i)) <= {JOBS_MAX}
    END"""
_IS_EVENT: Final = f"""event IN ({", ".join(f"'{name}'" for name in EVENTS)}) AND topic IS NOT NULL
    AND ts BETWEEN 0 AND {_YEAR_9999_MS} AND batch IS NOT NULL AND n IS NOT NULL AND runs IS NOT NULL
    AND {_SOUND_RUNS}"""
_EVENT: Final = "IF(event = 'produced' AND origin IS NOT NULL, 'moved_in', event)"
_PAIRS: Final = """CASE WHEN NOT is_event OR size(runs) = 0 THEN NULL
    WHEN size(runs) = 2 THEN array(struct(get(runs, 0) AS first, get(runs, 1) AS count))
    ELSE transform(sequence(0, size(runs) - 2, 2), i -> struct(get(runs, i) AS first, get(runs, i + 1) AS count)) END"""
_JOBS: Final = """CASE WHEN size(pairs) = 1 THEN get(pairs, 0).count
    ELSE aggregate(pairs, 0L, (sum, pair) -> sum + pair.count) END"""


def _schema() -> StructType:
    from pyspark.sql import types as t

    texts = [t.StructField(name, t.StringType()) for name in ("event", "topic", *_TEXTS)]
    numbers = [t.StructField(name, t.LongType()) for name in ("ts", "batch", "n", *_NUMBERS)]
    return t.StructType([*texts, *numbers, t.StructField("runs", t.ArrayType(t.LongType()))])


def parse_entries(frame: DataFrame) -> DataFrame:
    """Parse a frame with a column ``entry``, a JSON document each; other columns but ``log`` are dropped."""
    from pyspark.sql import functions as f

    kept = [name for name in ("log",) if name in frame.columns]
    document = f.from_json(f.col("entry").cast("string"), _schema()).alias("row")
    return parse(frame.select(*kept, document).select(*kept, "row.*"))


def parse(frame: DataFrame) -> DataFrame:
    """Return the checked rows.

    The columns are ``log, topic, event, ts, batch, n, pairs, jobs, node, reason, dest, first_batch, last_batch,
    is_event``; ``pairs`` is ``runs`` as an array of (first, count). Raises Invalid (``report_columns``) where the frame
    lacks what every row has.
    """
    from pyspark.sql import functions as f

    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing:
        raise Invalid(f"these are no lifecycle events: no column {', '.join(missing)}", code="report_columns")
    columns = [
        f.col("log").cast("int") if "log" in frame.columns else f.lit(0).alias("log"),
        f.substring("topic", 1, NAME_MAX).alias("topic"),
        f.col("event"),
        *(f.col(name).cast("long").alias(name) for name in ("ts", "batch", "n")),
        f.col("runs"),
        *(_text(frame, name, length) for name, length in _TEXTS.items()),
        *(_number(frame, name) for name in _NUMBERS),
    ]
    rows = frame.select(*columns).withColumn("is_event", f.coalesce(f.expr(_IS_EVENT), f.lit(False)))
    rows = rows.withColumn("event", f.expr(_EVENT)).drop("origin").withColumn("pairs", f.expr(_PAIRS))
    return rows.withColumn("jobs", f.coalesce(f.expr(_JOBS), f.expr("0L"))).drop("runs")


def _text(frame: DataFrame, name: str, length: int) -> Column:
    from pyspark.sql import functions as f

    column = f.substring(name, 1, length) if name in frame.columns else f.lit(None).cast("string")
    return column.alias(name)


def _number(frame: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as f

    return (f.col(name) if name in frame.columns else f.lit(None)).cast("long").alias(name)
