"""The tables of a report, each a frame that Spark works out. ``docs/reference/report-tables.md`` defines them.

In every table ``queue`` is null in the rows that are about all queues together. Counts come from the rows as they are;
only what concerns single jobs is made of exploded steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tenure.spark.report.buckets import DELIVERIES, DURATIONS_MS
from tenure.spark.report.steps import measured

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ACCURACY", "RANKED_MAX", "TABLES", "Inputs"]

ACCURACY: Final = 10_000
"""Of the percentiles: the rank of what is given differs from the one asked for by at most a ten-thousandth."""
RANKED_MAX: Final = 100
"""Jobs in the poison ranking."""
_COUNTED: Final = ("produced", "claimed", "extended", "released", "expired", "acked", "dead_lettered", "redriven")
_OUTCOME: Final = """CASE WHEN begins THEN 'waiting' WHEN event = 'acked' THEN 'done'
    WHEN event = 'dead_lettered' THEN 'dead' WHEN event = 'redriven' THEN 'moved'
    WHEN event = 'claimed' THEN 'held' ELSE 'waiting' END"""


class Inputs:
    """What the tables are made of: the parsed rows, the steps of single jobs, and how far apart points of time are.

    ``workers`` is the table of that name, on which another builds.
    """

    def __init__(self, events: DataFrame, steps: DataFrame, *, step_ms: int) -> None:
        self.events = events.where("is_event AND event <> 'gap'")
        self.gaps = events.where("is_event AND event = 'gap'")
        self.steps = steps
        self.step_ms = step_ms
        self.workers = _workers(steps)


def queues(inputs: Inputs) -> DataFrame:
    """One row per queue: what happened, what became of the jobs, and how evenly the work was spread."""
    from pyspark.sql import functions as f

    counts = inputs.events.rollup("topic").agg(
        *_sums(_COUNTED), f.count("*").alias("rows"), f.min("ts").alias("first_ms"), f.max("ts").alias("last_ms")
    )
    ends = inputs.steps.where("is_last").withColumn("outcome", f.expr(_OUTCOME))
    lives = ends.rollup("topic").agg(
        f.count("*").alias("lives"),
        *(f.count_if(f.col("outcome") == name).alias(name) for name in ("done", "dead", "moved", "held", "waiting")),
        f.count_if(f.col("life") == 0).alias("begun_before"),
        f.count_if(f.col("deliveries") > 1).alias("delivered_again"),
    )
    spread = _fairness(inputs.workers.withColumnRenamed("queue", "topic"))
    joined = counts
    for other in (lives, spread):
        other = other.withColumnRenamed("topic", "also")
        joined = joined.join(other, f.col("topic").eqNullSafe(f.col("also")), "left").drop("also")
    whole = [name for name in joined.columns if name not in ("topic", "jain_acked", "jain_held")]
    return joined.fillna(0, whole).withColumnRenamed("topic", "queue")


def throughput(inputs: Inputs) -> DataFrame:
    """Jobs per point of time: produced, claimed, acked and so on."""
    from pyspark.sql import functions as f

    step_ms = inputs.step_ms
    start = (f.col("ts") - f.col("ts") % step_ms).alias("start_ms")
    frame = inputs.events.select(start, "topic", "event", "jobs").rollup("start_ms", "topic").agg(*_sums(_COUNTED))
    frame = frame.where("start_ms IS NOT NULL").withColumn("step_ms", f.lit(step_ms).cast("long"))
    return frame.select(f.col("topic").alias("queue"), "start_ms", "step_ms", *_COUNTED)


def latency(inputs: Inputs) -> DataFrame:
    """Percentiles of each measure."""
    from pyspark.sql import functions as f

    points = f.percentile_approx("ms", [0.5, 0.9, 0.99], ACCURACY).alias("points")
    frame = (
        measured(inputs.steps)
        .rollup("measure", "topic")
        .agg(f.count("*").alias("jobs"), points, f.max("ms").alias("max_ms"), f.sum("ms").alias("sum_ms"))
        .where("measure IS NOT NULL")
    )
    named = [f.get("points", f.lit(place)).alias(name) for place, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))]
    return frame.select(f.col("topic").alias("queue"), "measure", "jobs", *named, "max_ms", "sum_ms")


def latency_classes(inputs: Inputs) -> DataFrame:
    """How many jobs fall into which class of duration: 0, 1, 2, 5, 10, … ms."""
    from pyspark.sql import functions as f

    classes = measured(inputs.steps).withColumn("low_ms", _class("ms", DURATIONS_MS))
    frame = classes.rollup("measure", "low_ms", "topic").agg(f.count("*").alias("jobs"))
    frame = frame.where("low_ms IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "measure", "low_ms", "jobs")


def deliveries(inputs: Inputs) -> DataFrame:
    """How often jobs were delivered in one life, of those whose life began in the range."""
    from pyspark.sql import functions as f

    ends = inputs.steps.where("is_last AND life > 0").withColumn("outcome", f.expr(_OUTCOME))
    frame = (
        ends.withColumn("low", _class("deliveries", DELIVERIES))
        .rollup("low", "topic")
        .agg(
            f.count("*").alias("jobs"),
            f.sum("deliveries").alias("deliveries"),
            *(f.count_if(f.col("outcome") == name).alias(name) for name in ("done", "dead")),
        )
        .where("low IS NOT NULL")
    )
    return frame.select(f.col("topic").alias("queue"), "low", "jobs", "deliveries", "done", "dead")


def returns(inputs: Inputs) -> DataFrame:
    """Deliveries that did not end with an ack, by how and why, and how many of these jobs were claimed again."""
    from pyspark.sql import functions as f

    ended = f.expr("event IN ('released', 'expired') OR (event = 'dead_lettered' AND before = 'claimed')")
    again = f.expr("event = 'claimed' AND before IN ('released', 'expired')")
    frame = inputs.steps.where(ended | again).select(
        "topic",
        f.when(again, f.col("before")).otherwise(f.col("event")).alias("how"),
        f.when(again, f.col("before_why")).otherwise(f.col("why")).alias("reason"),
        f.when(again, 0).otherwise(1).alias("returned"),
        f.when(again, 1).otherwise(0).alias("redelivered"),
        f.when(f.expr("event <> 'claimed' AND before = 'claimed'"), f.col("before_ms")).alias("lost_ms"),
    )
    frame = frame.rollup("how", "reason", "topic").agg(
        *(f.sum(name).alias(name) for name in ("returned", "redelivered")),
        f.coalesce(f.sum("lost_ms"), f.expr("0L")).alias("lost_ms"),
    )
    frame = frame.where("how IS NOT NULL AND reason IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "how", "reason", "returned", "redelivered", "lost_ms")


def poison(inputs: Inputs) -> DataFrame:
    """The jobs that were delivered most often in one life, the worst first."""
    from pyspark.sql import functions as f

    frame = inputs.steps.where("is_last AND deliveries > 1").select(
        f.col("topic").alias("queue"),
        "seq",
        "life",
        "deliveries",
        f.expr(_OUTCOME).alias("outcome"),
        f.expr("IF(event = 'dead_lettered' AND before <> 'claimed', coalesce(before_why, why), why)").alias("reason"),
        f.col("ts").alias("last_ms"),
        "log",
    )
    return frame.orderBy(f.desc("deliveries"), "queue", "seq", "log", "life").limit(RANKED_MAX)


def workers(inputs: Inputs) -> DataFrame:
    """What each worker did: jobs claimed, completed and given back, and how long it had jobs in hand."""
    return inputs.workers


def _workers(steps: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    ends = f.expr("before = 'claimed' AND event IN ('acked', 'released', 'expired', 'dead_lettered')")
    frame = (
        steps.where("node IS NOT NULL AND event IN ('claimed', 'acked', 'released', 'expired', 'dead_lettered')")
        .rollup("node", "topic")
        .agg(
            *(f.count_if(f.col("event") == name).alias(name) for name in ("claimed", "acked", "released", "expired")),
            f.coalesce(f.sum(f.when(ends, f.col("before_ms"))), f.expr("0L")).alias("held_ms"),
        )
        .where("node IS NOT NULL")
    )
    return frame.select(f.col("topic").alias("queue"), "node", "claimed", "acked", "released", "expired", "held_ms")


def dead_letters(inputs: Inputs) -> DataFrame:
    """Jobs taken out of circulation, by why and where they went; no ``dest`` means parked in place, or dropped."""
    from pyspark.sql import functions as f

    frame = inputs.events.where("event = 'dead_lettered'").fillna("", ["reason"])
    frame = frame.rollup("reason", f.coalesce("dest", f.lit("")).alias("dest"), "topic").agg(
        f.sum("jobs").alias("jobs")
    )
    frame = frame.where("reason IS NOT NULL AND dest IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "reason", f.expr("nullif(dest, '')").alias("dest"), "jobs")


def gaps(inputs: Inputs) -> DataFrame:
    """Events that the exporter could not tell."""
    from pyspark.sql import functions as f

    queue = f.expr("nullif(topic, '')").alias("queue")
    return inputs.gaps.select(queue, "reason", f.col("ts").alias("at_ms"), "first_batch", "last_batch")


TABLES: Final[dict[str, Callable[[Inputs], DataFrame]]] = {
    made.__name__: made
    for made in (
        workers,
        queues,
        throughput,
        latency,
        latency_classes,
        deliveries,
        returns,
        poison,
        dead_letters,
        gaps,
    )
}
"""Every table by the name of its directory, in the order in which they are made."""


def _sums(names: tuple[str, ...]) -> list[Column]:
    """Jobs by kind of event, a column each."""
    from pyspark.sql import functions as f

    return [f.sum(f.when(f.col("event") == name, f.col("jobs")).otherwise(f.expr("0L"))).alias(name) for name in names]


def _class(column: str, edges: tuple[int, ...]) -> Column:
    """Where the class begins that a number falls into."""
    from pyspark.sql import functions as f

    cases = " ".join(f"WHEN {column} >= {edge} THEN {edge}L" for edge in reversed(edges[1:]))
    return f.expr(f"CASE {cases} ELSE {edges[0]}L END")


def _fairness(of_workers: DataFrame) -> DataFrame:
    """Jain's index over the workers of each queue: 1 where all did the same, 1/n where one of n did everything."""
    from pyspark.sql import functions as f

    def index(name: str) -> Column:
        number = f.col(name).cast("double")
        squares = f.sum(number * number)
        return f.when(squares > 0, f.pow(f.sum(number), f.lit(2.0)) / (f.count("*") * squares))

    return of_workers.groupBy("topic").agg(
        f.count("*").alias("workers"), index("acked").alias("jain_acked"), index("held_ms").alias("jain_held")
    )
