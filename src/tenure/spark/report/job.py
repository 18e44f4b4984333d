"""The report as a Spark job: read, check, explode once, compute the tables, write them, and make the page.

The input is parsed once and kept on the executors' disks, and so are the steps; no action brings more than a bounded
number of rows to the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.errors import Invalid, NotFound
from tenure.spark.report.buckets import RUN_CONF, step_ms_for
from tenure.spark.report.events import BufferEvents, TableEvents
from tenure.spark.report.model import Figures
from tenure.spark.report.page.page import page
from tenure.spark.report.read_back import read_figures
from tenure.spark.report.steps import steps_of
from tenure.spark.report.tables import TABLES, Inputs
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.session_conf import session_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PAGE", "Scope", "check_out", "make_report"]

PAGE: Final = "report.html"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a report: some queues, or all; events from ``since_ms`` on and before ``until_ms``."""

    queues: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None


def check_out(out: Path) -> None:
    """Raise Invalid (``report_out``) for a directory that holds something else."""
    if out.exists() and not out.is_dir():
        raise Invalid(f"{out} is a file: name a directory for the report", code="report_out")
    if out.exists() and any(out.iterdir()) and not (out / PAGE).exists():
        raise Invalid(f"{out} holds something that is no report: name another directory", code="report_out")


def make_report(
    spark: SparkSession,
    source: BufferEvents | TableEvents,
    out: Path,
    *,
    scope: Scope | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Figures:
    """Write the tables to ``out/tables`` and the page to ``out/report.html``; returns what the page shows.

    ``out`` must be the same directory for this process and for Spark. Raises Invalid (``report_out``,
    ``report_columns``), NotFound (``no_events``, ``nothing_to_report``).
    """
    from pyspark import StorageLevel

    check_out(out)
    place = Place(out)
    report_step = on_step or (lambda _: None)
    report_step("reading the events")
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        if source.is_small:
            kept.enter_context(session_conf(spark, RUN_CONF))
        rows = source.rows(spark)
        events = keep(_within(rows.coalesce(1) if source.is_small else rows, scope or Scope()))
        first_ms, last_ms, malformed = _span(events)
        step_ms = step_ms_for(first_ms, last_ms)
        inputs = Inputs(events, keep(steps_of(events)), step_ms=step_ms)
        keep(inputs.workers)
        keep(inputs.durations)
        out.mkdir(parents=True, exist_ok=True)
        (out / PAGE).touch()  # so that a report cut off here may be made again
        for number, (name, table) in enumerate(TABLES.items(), 1):
            report_step(f"working out {name}, {number} of {len(TABLES)}")
            table(inputs).repartition(1).write.mode("overwrite").parquet(place.spark_path(f"tables/{name}"))
    figures = read_figures(
        out / "tables", source=source.url, only=scope.queues if scope else (), step_ms=step_ms, malformed=malformed
    )
    (out / PAGE).write_text(page(figures), encoding="utf-8")
    return figures


def _within(events: DataFrame, scope: Scope) -> DataFrame:
    """Return the events of the scope, and every row that cannot be placed.

    A gap carries the time of the last event before it, so one which began before the scope may reach into it: it stays.
    """
    from pyspark.sql import functions as f

    if scope.queues:
        events = events.where(~f.col("is_event") | (f.col("topic") == "") | f.col("topic").isin(*scope.queues))
    if scope.since_ms is not None:
        events = events.where(~f.col("is_event") | (f.col("event") == "gap") | (f.col("ts") >= scope.since_ms))
    if scope.until_ms is not None:
        events = events.where(~f.col("is_event") | (f.col("ts") < scope.until_ms))
    return events


def _span(events: DataFrame) -> tuple[int, int, int]:
    """Return the times of the first and the last event, and the number of malformed rows. Raises NotFound if none."""
    from pyspark.sql import functions as f

    placed = f.when(f.expr("is_event AND event <> 'gap'"), f.col("ts"))
    found = events.agg(f.min(placed), f.max(placed), f.count_if(~f.col("is_event"))).collect()[0]
    if found[0] is None:
        others = f"; {found[2]:,} entries are something else" if found[2] else ""
        raise NotFound(f"there are no lifecycle events of these queues and that time{others}", code="nothing_to_report")
    return int(found[0]), int(found[1]), int(found[2])
