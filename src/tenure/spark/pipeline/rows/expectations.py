"""Expectations: mark the rows that fail, then set them aside, drop them, or stop the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import Conflict
from tenure.spark.pipeline.file.sections import Expect, Pipeline
from tenure.spark.pipeline.rows.counts import Counts
from tenure.spark.pipeline.rows.stages import Stages

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FAILED", "ExpectationSet"]

FAILED: Final = "_failed_expectations"
"""The column with the names of the expectations that a row does not meet; dropped before it is written."""
_SEQS_TOLD_MAX: Final = 10


class ExpectationSet:
    """The expectations of a pipeline. A row that fails several is set aside before it is dropped."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.all = pipeline.expect
        self._pipeline = pipeline

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def needs_rows_twice(self) -> bool:
        """Return whether rows have to be read before anything is written."""
        return self._pipeline.expectations is not None or any(one.otherwise != "drop" for one in self.all)

    def mark(self, rows: DataFrame, stages: Stages) -> DataFrame:
        """Add what each row fails. Raises Invalid (``bad_step``) for an expression that cannot be planned."""
        from pyspark.sql import functions as f

        if not self.all:
            return rows
        names: list[Column] = []
        for index, expect in enumerate(self.all):
            with stages.errors_at(("expect", index, "that")):
                met = f.coalesce(f.expr(expect.that).cast("boolean"), f.lit(False))
                rows.select(met).schema  # noqa: B018 - makes a server that plans late plan it now
                names.append(f.when(~met, f.lit(expect.name)))
        return rows.withColumn(FAILED, f.array_compact(f.array(*names)))

    def figures(self) -> dict[str, Column]:
        """Return what is counted: rows that come in, that fail each, and what becomes of them."""
        from pyspark.sql import functions as f

        rows = {"rows_in": f.count(f.lit(1))}
        if not self.all:
            return rows
        fails = {f"fails_{index}": _count(_fails([one])) for index, one in enumerate(self.all)}
        aside = _fails(self._those("quarantine"))
        dropped = _fails(self._those("drop")) & ~aside
        return rows | fails | {"quarantined": _count(aside), "dropped": _count(dropped)}

    def good(self, rows: DataFrame) -> DataFrame:
        """Return the rows that go on."""
        from pyspark.sql import functions as f

        return rows.where(f.size(FAILED) == 0).drop(FAILED) if self.all else rows

    def set_aside(self, rows: DataFrame) -> DataFrame | None:
        """Return the rows for the quarantine, with what they fail; None where no expectation sends any there."""
        those = self._those("quarantine")
        return rows.where(_fails(those)) if those else None

    def stop_on_failure(self, rows: DataFrame, counts: Counts) -> None:
        """Raise Conflict (``expectation_failed``) where a row fails what no row may fail."""
        for index, expect in enumerate(self.all):
            failed = counts().get(f"fails_{index}", 0) if expect.otherwise == "fail" else 0
            if failed:
                where = _seqs(rows, expect)
                raise Conflict(
                    f"{failed:,} {'row fails' if failed == 1 else 'rows fail'} the expectation {expect.name}"
                    f"{f', of batches {where}' if where else ''}: nothing of the range was written. Mend the data or "
                    "the expectation, and run again",
                    code="expectation_failed",
                    expectation=expect.name,
                    rows=failed,
                )

    def _those(self, otherwise: str) -> list[Expect]:
        return [one for one in self.all if one.otherwise == otherwise]


def _fails(expects: list[Expect]) -> Column:
    """Return whether a row fails one of them."""
    from pyspark.sql import functions as f

    return f.arrays_overlap(f.col(FAILED), f.array(*[f.lit(one.name) for one in expects])) if expects else f.lit(False)


def _count(which: Column) -> Column:
    from pyspark.sql import functions as f

    return f.count(f.when(which, f.lit(1)))


def _seqs(rows: DataFrame, expect: Expect) -> str:
    """Return the first batches that failing rows come from, as far as the rows still show them."""
    if "_seq" not in rows.columns:
        return ""
    found = rows.where(_fails([expect])).select("_seq").distinct().orderBy("_seq").limit(_SEQS_TOLD_MAX + 1).collect()
    seqs = [str(row["_seq"]) for row in found]
    return ", ".join(seqs[:_SEQS_TOLD_MAX]) + (" and more" if len(seqs) > _SEQS_TOLD_MAX else "")
