"""Expectations: mark the rows that fail, then set them aside, drop them, or stop the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.errors import Conflict
from tenure.spark.jobs.counts import Found
from tenure.spark.pipeline.file.sections import Expect, Pipeline
from tenure.spark.pipeline.file.sink import on_nul_of
from tenure.spark.pipeline.rows.deduplicate import PLACE
from tenure.spark.pipeline.rows.stages import Stages
from tenure.spark.sinks.arguments import quote_name
from tenure.spark.sinks.postgres.nul import holds_nul
from tenure.spark.sinks.postgres.times import holds_foreign_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ASIDE", "FAILED", "ExpectationSet", "expects_of", "with_whole_entries"]

FAILED: Final = "_failed_expectations"
"""The column with the names of the expectations that a row does not meet; dropped before it is written."""
ASIDE: Final = "_set_aside"
"""The column that is true of a row for the quarantine; dropped with the other."""
_SEQS_TOLD_MAX: Final = 10

_NO_NUL: Final = Expect(name="no NUL", that="no text holds a NUL", otherwise="quarantine")
_TIME_FITS: Final = Expect(name="time fits", that="the table can hold each date and timestamp", otherwise="quarantine")
_OF_TABLE: Final = {_NO_NUL.name: (_NO_NUL, holds_nul), _TIME_FITS.name: (_TIME_FITS, holds_foreign_time)}
"""The expectations of a table that cannot store all that an entry may hold, which no expression of a file states.

Each has what tells the rows that do not meet it. Names of a file have no spaces.
"""


def expects_of(pipeline: Pipeline) -> list[Expect]:
    """Return the expectations of a pipeline: those of the file, and those of its table."""
    of_table = [expect for expect, _ in _OF_TABLE.values()]
    return [*pipeline.expect, *(of_table if on_nul_of(pipeline) == "quarantine" else [])]


class ExpectationSet:
    """The expectations of a pipeline. A row that fails several is set aside before it is dropped."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.all = expects_of(pipeline)
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
            if expect.name in _OF_TABLE:
                _, is_refused = _OF_TABLE[expect.name]
                names.append(f.when(is_refused(rows), f.lit(expect.name)))
                continue
            with stages.errors_at(("expect", index, "that")):
                met = f.coalesce(f.expr(expect.that).cast("boolean"), f.lit(False))
                rows.select(met).schema  # noqa: B018 - makes a server that plans late plan it now
                names.append(f.when(~met, f.lit(expect.name)))
        marked = rows.withColumn(FAILED, f.array_compact(f.array(*names)))
        return marked.withColumn(ASIDE, _fails(self._those("quarantine")))

    def figures(self) -> dict[str, Column]:
        """Return what is counted beside all rows: those that fail each, and what becomes of them."""
        from pyspark.sql import functions as f

        if not self.all:
            return {}
        fails = {f"fails_{index}": f.count_if(_fails([one])) for index, one in enumerate(self.all)}
        dropped = _fails(self._those("drop")) & ~f.col(ASIDE)
        return fails | {"quarantined": f.count_if(ASIDE), "dropped": f.count_if(dropped)}

    def good(self, rows: DataFrame) -> DataFrame:
        """Return the rows that go on."""
        from pyspark.sql import functions as f

        return rows.where((f.size(FAILED) == 0) & ~f.col(ASIDE)).drop(FAILED, ASIDE) if self.all else rows

    def set_aside(self, rows: DataFrame) -> DataFrame | None:
        """Return the rows for the quarantine, with what they fail; None where no expectation sends any there."""
        from pyspark.sql import functions as f

        return rows.where(f.col(ASIDE)) if self._those("quarantine") else None

    def needs_whole_entries(self, rows: DataFrame, found: Found) -> bool:
        """Return whether entries of which a row is set aside may have other rows, and the rows show which these are.

        Only a step makes several rows of an entry.
        """
        return bool(self._pipeline.step) and found["quarantined"] > 0 and set(PLACE) <= set(rows.columns)

    def stop_on_failure(self, rows: DataFrame, found: Found) -> None:
        """Raise Conflict (``expectation_failed``) where a row fails what no row may fail."""
        for index, expect in enumerate(self.all):
            failed = found[f"fails_{index}"] if expect.otherwise == "fail" else 0
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


def with_whole_entries(marked: DataFrame) -> DataFrame:
    """Return marked rows, all rows of an entry set aside where one of them is.

    The entry is what a replay produces again. If its good rows went into the table now, they would be there twice then.
    """
    from pyspark.sql import functions as f

    together = "__tenure_together"
    known = [f.col(name).isNotNull() for name in PLACE]
    places = marked.where(f.col(ASIDE)).where(known[0] & known[1]).select(*PLACE).distinct()
    joined = marked.join(f.broadcast(places.withColumn(together, f.lit(True))), list(PLACE), "left")
    aside = f.col(ASIDE) | f.coalesce(f.col(together), f.lit(False))
    return joined.withColumn(ASIDE, aside).select(*[quote_name(name) for name in marked.columns])


def _fails(expects: list[Expect]) -> Column:
    """Return whether a row fails one of them."""
    from pyspark.sql import functions as f

    return f.arrays_overlap(f.col(FAILED), f.array(*[f.lit(one.name) for one in expects])) if expects else f.lit(False)


def _seqs(rows: DataFrame, expect: Expect) -> str:
    """Return the first batches that failing rows come from, as far as the rows still show them."""
    if "_seq" not in rows.columns:
        return ""
    found = rows.where(_fails([expect])).select("_seq").distinct().orderBy("_seq").limit(_SEQS_TOLD_MAX + 1).collect()
    seqs = [str(row["_seq"]) for row in found]
    return ", ".join(seqs[:_SEQS_TOLD_MAX]) + (" and more" if len(seqs) > _SEQS_TOLD_MAX else "")
