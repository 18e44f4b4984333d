"""The steps of each job through its queue: for each event, what came before it, and in which life of the job.

Ranges are exploded here and nowhere else. Everything about a job follows from its rows in the order of the log, so one
shuffle by job and one sort give it all; both spill to disk, and a job's rows are never gathered in memory.

A **life** begins when a job is produced or moved in, or is put back to work in its own queue (``redriven``). Jobs whose
life began before the first event that is there are in life 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["GIVEN_BACK", "MEASURES", "durations_of", "steps_of"]

MEASURES: Final = ("wait", "wait_again", "processing", "returned", "life")
"""The durations, as the reference defines them."""

GIVEN_BACK: Final = "('released', 'returned', 'expired', 'lost')"
"""The events that end a delivery and leave the job to another one, for expressions."""

_JOB: Final = ("seq", "topic", "log")
"""A job's identity; numbers first, as they are compared fastest."""
_ORDER: Final = ("batch", "n")
_WHY: Final = """CASE event WHEN 'expired' THEN 'lease ran out'
    WHEN 'lost' THEN concat('its worker was lost', coalesce(concat(': ', reason), ''))
    WHEN 'returned' THEN concat('returned untried', coalesce(concat(': ', reason), ''))
    WHEN 'released' THEN coalesce(reason, 'nack') WHEN 'dead_lettered' THEN coalesce(reason, '') END"""
_MS_SINCE: Final = "CASE WHEN {since} IS NOT NULL THEN greatest(0L, ts - {since}) END"  # a clock may be set back


def steps_of(events: DataFrame) -> DataFrame:
    """Return one row per event and job.

    The columns are ``log, topic, seq, life, begins, event, ts, node, why, before, before_why, before_ms, life_ms,
    deliveries, is_last``. ``before`` is the job's event right before (extensions and begins are passed over),
    ``before_ms`` the time since; ``node`` is who holds or held the job, ``why`` how a delivery ended, or the last one
    that did; ``deliveries`` counts the claims of this life so far; ``is_last`` marks the last row of each life.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    in_order = Window.partitionBy(*_JOB).orderBy(*_ORDER)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def latest(name: str) -> Column:
        return f.last(name, ignorenulls=True).over(so_far)

    # Together, and over columns instead of expressions, they are one pass of Spark's; each by itself would be another.
    first_pass = _add_marks(_sort(_explode(events))).withColumns(
        {
            "claims": f.sum("claim").over(so_far),
            "life": f.sum("begin").over(so_far),
            "life_ts": latest("begin_ts"),
            "reason_so_far": latest("reason_from_here"),
            "holder": latest("claim_node"),
            "before": f.lag("event").over(in_order),
            "before_ts": f.lag("ts").over(in_order),
            "before_why": f.lag("why").over(in_order),
            "next_begins": f.lead("begins").over(in_order),
        }
    )
    second_pass = first_pass.withColumn("claims_here", f.expr("CASE WHEN begins THEN claims END"))
    return second_pass.withColumn("claims_before", latest("claims_here")).select(
        "log",
        "topic",
        "seq",
        "life",
        "begins",
        "event",
        "ts",
        f.coalesce(f.expr("CASE WHEN before = 'claimed' THEN holder END"), f.col("node")).alias("node"),
        f.coalesce("why", f.col("reason_so_far"), f.lit("")).alias("why"),
        "before",
        "before_why",
        f.expr(_MS_SINCE.format(since="before_ts")).alias("before_ms"),
        f.expr(_MS_SINCE.format(since="life_ts")).alias("life_ms"),
        (f.col("claims") - f.coalesce("claims_before", f.lit(0))).alias("deliveries"),
        f.coalesce("next_begins", f.lit(True)).alias("is_last"),
    )


def _explode(events: DataFrame) -> DataFrame:
    """Return one row per event and job, with whether a life begins, and how a delivery ended."""
    from pyspark.sql import functions as f

    return (
        events.where("is_event AND event NOT IN ('extended', 'begun', 'gap')")
        .withColumn("pair", f.explode("pairs"))
        .withColumn("seq", f.explode(f.expr("sequence(pair.first, pair.first + pair.count - 1)")))
        .withColumn("begins", f.expr("event IN ('produced', 'moved_in') OR (event = 'redriven' AND dest <=> topic)"))
        .withColumn("why", f.expr(_WHY))
        .select(*_JOB, *_ORDER, "event", "ts", "node", "begins", "why")
    )


def _sort(rows: DataFrame) -> DataFrame:
    """Return the rows of each job together and in the order of the log: the one shuffle and the one sort."""
    return rows.repartition(*_JOB).sortWithinPartitions(*_JOB, *_ORDER)


def _add_marks(rows: DataFrame) -> DataFrame:
    """Add the columns that the passes sum and look back on, after the sort, which moves less without them."""
    from pyspark.sql import functions as f

    return rows.withColumns(
        {
            "claim": f.expr("CAST(event = 'claimed' AS LONG)"),
            "claim_node": f.expr("CASE WHEN event = 'claimed' THEN node END"),
            "begin": f.expr("CAST(begins AS LONG)"),
            "begin_ts": f.expr("CASE WHEN begins THEN ts END"),
            "reason_from_here": f.expr("CASE WHEN begins THEN '' ELSE why END"),
        }
    )


def durations_of(steps: DataFrame) -> DataFrame:
    """Return how many jobs took how long: ``topic, measure, ms, jobs``, without what began before the first event."""
    from pyspark.sql import functions as f

    of_step = f.expr(
        f"""CASE WHEN event = 'claimed' AND before IN ('produced', 'moved_in', 'redriven') THEN 'wait'
            WHEN event = 'claimed' AND before IN {GIVEN_BACK} THEN 'wait_again'
            WHEN event = 'acked' AND before = 'claimed' THEN 'processing'
            WHEN (event = 'dead_lettered' OR event IN {GIVEN_BACK}) AND before = 'claimed' THEN 'returned' END"""
    )
    pairs = f.array(
        f.struct(of_step.alias("measure"), f.col("before_ms").alias("ms")),
        f.struct(f.expr("CASE WHEN event = 'acked' THEN 'life' END").alias("measure"), f.col("life_ms").alias("ms")),
    )
    return (
        steps.select("topic", f.explode(pairs).alias("pair"))
        .select("topic", "pair.measure", "pair.ms")
        .where("measure IS NOT NULL AND ms IS NOT NULL")
        .groupBy("topic", "measure", "ms")
        .agg(f.count("*").alias("jobs"))
    )
