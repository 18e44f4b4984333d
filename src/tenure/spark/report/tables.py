"""The tables of a report, each a frame that Spark computes. ``docs/reference/report-tables.md`` defines them.

In every table ``queue`` is null in the rows that are about all queues together. Counts come from the rows as they are;
only what concerns single jobs is made of exploded steps. Everything is summed before it is rolled up, as Spark copies
each row for each level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tenure.spark.report.buckets import DELIVERIES, DURATIONS_MS
from tenure.spark.report.steps import GIVEN_BACK, durations_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["RANKED_MAX", "TABLES", "Inputs"]

RANKED_MAX: Final = 100
"""Jobs in the poison ranking."""
_COUNTED: Final = (
    *("produced", "moved_in", "claimed", "extended", "released", "returned", "expired", "lost"),
    *("acked", "dead_lettered", "redriven"),
)
_OUTCOMES: Final = ("done", "dead", "moved", "held", "waiting")
_OUTCOME: Final = """CASE WHEN begins THEN 'waiting' WHEN event = 'acked' THEN 'done'
    WHEN event = 'dead_lettered' THEN 'dead' WHEN event = 'redriven' THEN 'moved'
    WHEN event = 'claimed' THEN 'held' ELSE 'waiting' END"""
_MS_MAX: Final = 9e18
"""The greatest sum of durations: more is not a real wait, but must not fail a report."""


class Inputs:
    """The input of the tables: the parsed rows, the steps of single jobs, and the distance of two points of time.

    ``workers`` is the table of that name, on which another builds; ``durations`` has how many jobs took how long.
    """

    def __init__(self, events: DataFrame, steps: DataFrame, *, step_ms: int) -> None:
        self.events = events.where("is_event AND event <> 'gap'")
        self.gaps = events.where("is_event AND event = 'gap'")
        self.steps = steps
        self.step_ms = step_ms
        self.workers = _workers(steps)
        self.durations = durations_of(steps)


def queues(inputs: Inputs) -> DataFrame:
    """Return one row per queue: what happened, what became of the jobs, and how evenly the work was spread."""
    from pyspark.sql import functions as f

    ts = f.col("ts")
    counts = _roll_up(
        inputs.events, "topic", counts=_by_event() | {"rows": f.lit(1)}, least={"first_ms": ts}, most={"last_ms": ts}
    )
    ends = inputs.steps.where("is_last").withColumn("outcome", f.expr(_OUTCOME))
    lives = {
        "lives": f.lit(1),
        **{name: f.col("outcome") == name for name in _OUTCOMES},
        "begun_before": f.col("life") == 0,
        "delivered_again": f.col("deliveries") > 1,
    }
    spread = _fairness(inputs.workers.withColumnRenamed("queue", "topic"))
    joined = counts
    for other in (_roll_up(ends, "topic", counts=lives), spread):
        other = other.withColumnRenamed("topic", "also")
        joined = joined.join(other, f.col("topic").eqNullSafe(f.col("also")), "left").drop("also")
    whole = [name for name in joined.columns if name not in ("topic", "jain_acked", "jain_held")]
    return joined.fillna(0, whole).withColumnRenamed("topic", "queue")


def throughput(inputs: Inputs) -> DataFrame:
    """Return the jobs per point of time: produced, claimed, acked and so on."""
    from pyspark.sql import functions as f

    step_ms = inputs.step_ms
    events = inputs.events.withColumn("start_ms", f.col("ts") - f.col("ts") % step_ms)
    frame = _roll_up(events, "start_ms", "topic", counts=_by_event())
    frame = frame.where("start_ms IS NOT NULL").withColumn("step_ms", f.lit(step_ms).cast("long"))
    return frame.select(f.col("topic").alias("queue"), "start_ms", "step_ms", *_COUNTED)


def latency(inputs: Inputs) -> DataFrame:
    """Return percentiles of each measure: the least duration that so many of the jobs did not exceed."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_queues = inputs.durations
    of_all = of_queues.groupBy("measure", "ms").agg(f.sum("jobs").alias("jobs"))
    each = of_queues.unionByName(of_all.withColumn("topic", f.lit(None).cast("string")))
    whole = Window.partitionBy("measure", "topic")
    up_to_here = whole.orderBy("ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = each.withColumns({"reached": 100 * f.sum("jobs").over(up_to_here), "of": f.sum("jobs").over(whole)})
    frame = ranked.groupBy("topic", "measure").agg(
        f.sum("jobs").alias("jobs"),
        *(f.min(f.when(f.expr(f"reached >= of * {part}"), f.col("ms"))).alias(f"p{part}_ms") for part in (50, 90, 99)),
        f.max("ms").alias("max_ms"),
        _bound(f.sum(f.col("ms").cast("double") * f.col("jobs"))).alias("sum_ms"),
    )
    return frame.withColumnRenamed("topic", "queue")


def latency_classes(inputs: Inputs) -> DataFrame:
    """Return how many jobs fall into which class of duration: 0, 1, 2, 5, 10, … ms."""
    from pyspark.sql import functions as f

    classes = inputs.durations.withColumn("low_ms", _class("ms", DURATIONS_MS))
    frame = _roll_up(classes, "measure", "low_ms", "topic", counts={"jobs": f.col("jobs")})
    frame = frame.where("low_ms IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "measure", "low_ms", "jobs")


def deliveries(inputs: Inputs) -> DataFrame:
    """Return how often jobs were delivered in one life, for those whose life began in the range."""
    from pyspark.sql import functions as f

    ends = inputs.steps.where("is_last AND life > 0").withColumn("outcome", f.expr(_OUTCOME))
    counts = {
        "jobs": f.lit(1),
        "deliveries": f.col("deliveries"),
        **{name: f.col("outcome") == name for name in ("done", "dead")},
    }
    frame = _roll_up(ends.withColumn("low", _class("deliveries", DELIVERIES)), "low", "topic", counts=counts)
    return frame.where("low IS NOT NULL").select(f.col("topic").alias("queue"), "low", *counts)


def returns(inputs: Inputs) -> DataFrame:
    """Return deliveries that did not end with an ack, by how and why, and how many jobs were claimed again."""
    from pyspark.sql import functions as f

    ended = f.expr(f"event IN {GIVEN_BACK} OR (event = 'dead_lettered' AND before = 'claimed')")
    again = f.expr(f"event = 'claimed' AND before IN {GIVEN_BACK}")
    frame = inputs.steps.where(ended | again).select(
        "topic",
        again.alias("again"),
        f.when(again, f.col("before")).otherwise(f.col("event")).alias("how"),
        f.when(again, f.col("before_why")).otherwise(f.col("why")).alias("reason"),
        f.when(f.expr("event <> 'claimed' AND before = 'claimed'"), f.col("before_ms")).alias("lost_ms"),
    )
    counts = {"returned": ~f.col("again"), "redelivered": f.col("again")}
    frame = _roll_up(frame, "how", "reason", "topic", counts=counts, durations={"lost_ms": f.col("lost_ms")})
    frame = frame.where("how IS NOT NULL AND reason IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "how", "reason", "returned", "redelivered", "lost_ms")


def poison(inputs: Inputs) -> DataFrame:
    """Return the jobs that were delivered most often in one life, the worst first."""
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
    """Return for each worker: jobs claimed, completed and given back, and how long it held jobs."""
    return inputs.workers


def _workers(steps: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    seen = ("claimed", "acked", "released", "returned", "expired", "lost")
    ends = f.expr(f"before = 'claimed' AND (event IN ('acked', 'dead_lettered') OR event IN {GIVEN_BACK})")
    frame = _roll_up(
        steps.where(f.col("node").isNotNull() & f.col("event").isin(*seen, "dead_lettered")),
        "node",
        "topic",
        counts={name: f.col("event") == name for name in seen},
        durations={"held_ms": f.when(ends, f.col("before_ms"))},
    )
    frame = frame.where("node IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "node", *seen, "held_ms")


def dead_letters(inputs: Inputs) -> DataFrame:
    """Return dead-lettered jobs, by reason and destination; no ``dest`` means parked in place, or dropped."""
    from pyspark.sql import functions as f

    frame = inputs.events.where("event = 'dead_lettered'").fillna("", ["reason", "dest"])
    frame = _roll_up(frame, "reason", "dest", "topic", counts={"jobs": f.col("jobs")})
    frame = frame.where("reason IS NOT NULL AND dest IS NOT NULL")
    return frame.select(f.col("topic").alias("queue"), "reason", f.expr("nullif(dest, '')").alias("dest"), "jobs")


def gaps(inputs: Inputs) -> DataFrame:
    """Return the events that the exporter could not export."""
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


def _roll_up(
    frame: DataFrame,
    *keys: str,
    counts: Mapping[str, Column],
    durations: Mapping[str, Column] | None = None,
    least: Mapping[str, Column] | None = None,
    most: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Sum for each combination of the keys, and rolled up over them.

    Numbers, conditions and durations are added up, and the least and the greatest are kept.
    """
    from pyspark.sql import functions as f

    whole = {name: column.cast("long") for name, column in counts.items()}
    times = {name: column.cast("double") for name, column in (durations or {}).items()}
    parts = ((f.sum, whole), (f.sum, times), (f.min, least or {}), (f.max, most or {}))
    added = [how(column).alias(name) for how, columns in parts for name, column in columns.items()]
    again = [how(name).alias(name) for how, columns in parts for name in columns]
    rolled = frame.groupBy(*keys).agg(*added).rollup(*keys).agg(*again)
    for name in times:
        rolled = rolled.withColumn(name, _bound(f.col(name)))
    return rolled.fillna(0, [*whole, *times])


def _bound(duration_ms: Column) -> Column:
    """Return a sum of durations as a whole number, exact below 2 ** 53."""
    from pyspark.sql import functions as f

    return f.least(duration_ms, f.lit(_MS_MAX)).cast("long")


def _by_event() -> dict[str, Column]:
    """Return the jobs by kind of event, a column each."""
    from pyspark.sql import functions as f

    return {name: f.when(f.col("event") == name, f.col("jobs")) for name in _COUNTED}


def _class(column: str, edges: tuple[int, ...]) -> Column:
    """Return where the class begins that a number falls into."""
    from pyspark.sql import functions as f

    cases = " ".join(f"WHEN {column} >= {edge} THEN {edge}L" for edge in reversed(edges[1:]))
    return f.expr(f"CASE {cases} ELSE {edges[0]}L END")


def _fairness(of_workers: DataFrame) -> DataFrame:
    """Return Jain's index over the workers of each queue: 1 where all did the same, 1/n where one of n did all."""
    from pyspark.sql import functions as f

    def index(name: str) -> Column:
        number = f.col(name).cast("double")
        squares = f.sum(number * number)
        return f.when(squares > 0, f.pow(f.sum(number), f.lit(2.0)) / (f.count("*") * squares))

    return of_workers.groupBy("topic").agg(
        f.count("*").alias("workers"), index("acked").alias("jain_acked"), index("held_ms").alias("jain_held")
    )
