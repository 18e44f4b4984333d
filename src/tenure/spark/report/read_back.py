"""Read the first rows of the written tables back, without Spark and in bounded memory, as the page's figures."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from tenure.errors import Invalid
from tenure.spark.report.buckets import POINTS_MAX
from tenure.spark.report.model import (
    DeadLetters,
    Deliveries,
    Durations,
    Figures,
    Gap,
    Latency,
    Point,
    Poison,
    QueueRow,
    Returns,
    Worker,
)
from tenure.spark.report.steps import MEASURES

__all__ = ["QUEUES_SHOWN_MAX", "ROWS_SHOWN_MAX", "read_figures"]

QUEUES_SHOWN_MAX: Final = 30
ROWS_SHOWN_MAX: Final = 20
_CLASSES_MAX: Final = 200
_ROWS_AT_ONCE: Final = 1_000

Row = TypeVar("Row")


class _Top(Generic[Row]):
    """The first rows of a table by some order, and its number of rows."""

    def __init__(
        self, table: Path, kind: type[Row], *, key: Callable[[Row], Any], rows_max: int, where: Callable[[Row], bool]
    ) -> None:
        self.count = 0

        def counted() -> Iterator[Row]:
            for row in _rows(table, kind):
                if where(row):
                    self.count += 1
                    yield row

        self.rows = heapq.nsmallest(rows_max, counted(), key=key)


def read_figures(tables: Path, *, source: str, only: tuple[str, ...], step_ms: int, malformed: int) -> Figures:
    """Return the page's figures. Raises Invalid (``report_out``) where Spark wrote the tables to another machine."""
    if not (tables / "queues").is_dir():
        raise Invalid(
            f"Spark wrote no tables to {tables} that can be seen here: the directory must be one that the driver and "
            "the executors share",
            code="report_out",
        )

    def top(
        name: str, kind: type[Row], key: Callable[[Row], Any], where: Callable[[Row], bool], rows_max: int
    ) -> _Top[Row]:
        return _Top(tables / name, kind, key=key, rows_max=rows_max, where=where)

    worked = top("queues", QueueRow, _busiest, lambda row: row.queue is not None and row.claimed > 0, QUEUES_SHOWN_MAX)
    idle = top("queues", QueueRow, _busiest, lambda row: row.queue is not None and not row.claimed, QUEUES_SHOWN_MAX)
    shown = {None, *(row.queue for row in worked.rows)}
    kinds = len(shown)
    every = _rows(tables / "queues", QueueRow)
    returns = top("returns", Returns, lambda row: (-row.returned, row.queue, row.reason), _single, ROWS_SHOWN_MAX)
    workers = top("workers", Worker, lambda row: (-row.acked, row.node), _overall, ROWS_SHOWN_MAX)
    dead = top("dead_letters", DeadLetters, lambda row: (-row.jobs, row.queue, row.reason), _single, ROWS_SHOWN_MAX)
    poison = top("poison", Poison, lambda row: (-row.deliveries, row.queue, row.seq), lambda _: True, ROWS_SHOWN_MAX)
    gaps = top("gaps", Gap, lambda row: row.at_ms, lambda _: True, ROWS_SHOWN_MAX)

    def of_shown(row: Point | Latency) -> bool:
        return row.queue in shown

    return Figures(
        source=source,
        only=only,
        made_ms=time.time_ns() // 1_000_000,
        step_ms=step_ms,
        malformed=malformed,
        all=top("queues", QueueRow, lambda _: 0, _overall, 1).rows[0],
        open_jobs=sum(row.held + row.waiting for row in every if row.queue is not None and row.claimed),
        queues=worked.rows,
        queues_count=worked.count,
        idle=idle.rows,
        idle_count=idle.count,
        points=top("throughput", Point, lambda row: row.start_ms, of_shown, kinds * POINTS_MAX).rows,
        latency=top("latency", Latency, lambda row: row.measure, of_shown, kinds * len(MEASURES)).rows,
        classes=top("latency_classes", Durations, lambda row: row.low_ms, _overall, _CLASSES_MAX).rows,
        deliveries=top("deliveries", Deliveries, lambda row: row.low, _overall, ROWS_SHOWN_MAX).rows,
        returns=returns.rows,
        returns_count=returns.count,
        poison=poison.rows,
        workers=workers.rows,
        workers_count=workers.count,
        dead_letters=dead.rows,
        dead_letters_count=dead.count,
        gaps=gaps.rows,
        gaps_count=gaps.count,
    )


def _rows(table: Path, kind: type[Row]) -> Iterator[Row]:
    import pyarrow.parquet as pq

    for path in sorted(table.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    yield msgspec.convert(row, kind)


def _busiest(row: QueueRow) -> tuple[int, str]:
    return -(row.arrived + row.claimed + row.acked), row.queue or ""


def _overall(row: Any) -> bool:
    return row.queue is None


def _single(row: Any) -> bool:
    return row.queue is not None
