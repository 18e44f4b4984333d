"""The sink of a pipeline: the raw rows of a range go into up to three tables, into each of them once.

The quarantine and the results of expectations are tables of their own, with markers of their own. They are written
before the main one, and the range is acknowledged after it. After a crash in between, the range comes again, and each
table skips what it holds: what is in the main table is therefore always in the others too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.spark.decode import MALFORMED
from tenure.spark.jobs.causes import named_causes
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.file.sink import make_sink, side_table
from tenure.spark.pipeline.rows.counts import Counts, count_observed, count_persisted
from tenure.spark.pipeline.rows.expectations import ExpectationSet
from tenure.spark.pipeline.rows.set_aside import quarantine_rows
from tenure.spark.pipeline.rows.stages import Stages, without_malformed
from tenure.spark.sinks.protocol import Needs, SparkSink, is_held
from tenure.spark.toml_lines import problems_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tenure.spark.sinks.files.table import FileTable

__all__ = ["Figures", "Outputs"]

_RESULTS: Final = (
    "pipeline string, expectation string, otherwise string, passed long, failed long, low long, high long, ts timestamp"
)


class Decoded(NamedTuple):
    """A range: its raw rows, its decoded entries, and their figures."""

    raw: DataFrame
    entries: DataFrame
    counts: Counts


class Figures(msgspec.Struct, kw_only=True):
    """Counts of the entries of one range, or of several."""

    entries: int = 0
    rows: int = 0
    malformed: int = 0
    quarantined: int = 0
    dropped: int = 0
    failed: dict[str, int] = {}
    """Rows that did not meet an expectation, by its name."""

    def add(self, more: Figures) -> None:
        for name in ("entries", "rows", "malformed", "quarantined", "dropped"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for name, count in more.failed.items():
            self.failed[name] = self.failed.get(name, 0) + count


class Outputs:
    """The sink of a pipeline, for `ingest`, `backfill` and `write_stream`. ``figures`` sums up what it wrote."""

    def __init__(self, pipeline: Pipeline, *, into: str | None = None) -> None:
        self._pipeline = pipeline
        self._stages, self._expecting = Stages(pipeline), ExpectationSet(pipeline)
        self._main: SparkSink = make_sink(pipeline, into=into)
        self._sides: dict[str, FileTable] = {}
        for kind, section in (("quarantine", pipeline.quarantine), ("expectations", pipeline.expectations)):
            if section is not None:
                self._sides[kind] = side_table(pipeline, section.path, kind=kind, into=into)
        self.name = self._main.name
        self.schema_version = self._main.schema_version
        self.figures = Figures()
        self.on_write: Callable[[Commit], None] | None = None
        """Called with every commit after it, where no range writer reports it."""

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return what all of the tables need."""
        all_needs = [sink.needs(spark_version) for sink in (self._main, *self._sides.values())]
        packages = dict.fromkeys(package for needs in all_needs for package in needs.packages)
        conf = {key: value for needs in reversed(all_needs) for key, value in needs.conf.items()}
        return Needs(tuple(packages), conf)

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return what the main table holds."""
        return self._main.last_committed(spark, buffer)

    def plan(self, raw: DataFrame) -> DataFrame:
        """Plan the main table's rows for these raw ones. Raises Invalid (``bad_step``, ``bad_schema``)."""
        rows = self._stages.decode(raw)
        if self._pipeline.decode.malformed != "column":
            rows = without_malformed(rows)
        good = self._expecting.good(self._expecting.mark(self._stages.transform(rows), self._stages))
        self._check_columns(good)
        return good

    def _check_columns(self, rows: DataFrame) -> None:
        """Check what the main table asks of its rows. Raises Invalid (``bad_step``) naming the line."""
        sink, known = self._pipeline.sink, {name.lower() for name in rows.columns}
        for key in ("partition_by", "keys"):
            missing = [name for name in getattr(sink, key) if name.lower() not in known]
            if missing:
                problem = self._pipeline.located.problem(("sink", key), f"the rows have no {', '.join(missing)}")
                raise problems_error([problem], code="bad_step")
        if sink.select is not None:
            with self._stages.errors_at(("sink", "select")):
                rows.selectExpr(*sink.select).schema  # noqa: B018 - makes a server that plans late plan it now

    def write(self, frame: DataFrame, commit: Commit) -> None:
        """Decode, transform and check the rows, then write them, side tables first.

        Raises as the main sink does, Conflict (``expectation_failed``) before anything is written, Invalid
        (``bad_step``, ``bad_schema``).
        """
        if is_held(commit, self.last_committed(frame.sparkSession, commit.buffer)):
            return
        held: list[DataFrame] = []
        try:
            with named_causes(f"the range {commit.low} to {commit.high} was not written"):
                self._write(frame, commit, held)
        finally:
            for rows in held:
                rows.unpersist()
        if self.on_write is not None:
            self.on_write(commit)

    def _write(self, raw: DataFrame, commit: Commit, held: list[DataFrame]) -> None:
        mode = self._pipeline.decode.malformed
        entries, entry_counts = self._counted_entries(self._stages.decode(raw), held)
        range_ = Decoded(raw, entries, entry_counts)
        rows = entries if mode == "column" else without_malformed(entries)
        marked = self._expecting.mark(self._stages.transform(rows), self._stages)
        if self._expecting.needs_rows_twice:
            marked, row_counts = count_persisted(marked, self._expecting.figures(), held)
            self._expecting.stop_on_failure(marked, row_counts)
        else:
            merges = self._pipeline.sink.mode == "merge"
            marked, row_counts = count_observed(marked, self._expecting.figures(), held, through_views=merges)
        self._write_sides(range_, marked, row_counts, commit)
        self._main.write(self._expecting.good(marked), commit)
        self._note(entry_counts(), row_counts())

    def _counted_entries(self, entries: DataFrame, held: list[DataFrame]) -> tuple[DataFrame, Counts]:
        from pyspark.sql import functions as f

        figures = {"entries": f.count(f.lit(1)), "malformed": f.count(MALFORMED)}
        if self._pipeline.decode.malformed == "quarantine":
            return count_persisted(entries, figures, held)
        queries = any(step.python is None for step in self._pipeline.step) or self._pipeline.sink.mode == "merge"
        return count_observed(entries, figures, held, through_views=queries)

    def _write_sides(self, range_: Decoded, marked: DataFrame, counts: Counts, commit: Commit) -> None:
        for kind, side in self._sides.items():
            own = Commit(commit.buffer, side.name, commit.low, commit.high, side.schema_version)
            if kind == "expectations":
                side.write(self._results(marked.sparkSession, counts(), commit), own)
                continue
            malformed = self._pipeline.decode.malformed == "quarantine"
            aside = self._expecting.set_aside(marked)
            count = range_.counts()["malformed"] if malformed else 0
            count += 0 if aside is None else counts()["quarantined"]
            if count == 0 and side.last_committed(marked.sparkSession, commit.buffer) is not None:
                side.skip(own)
                continue
            side.write(quarantine_rows(range_.raw, range_.entries if malformed else None, aside, count=count), own)

    def _results(self, spark: SparkSession, counts: dict[str, int], commit: Commit) -> DataFrame:
        now = datetime.now(UTC)
        rows = []
        for index, expect in enumerate(self._expecting.all):
            failed = counts[f"fails_{index}"]
            passed = counts["rows_in"] - failed
            rows.append(
                (self._pipeline.name, expect.name, expect.otherwise, passed, failed, commit.low, commit.high, now)
            )
        return spark.createDataFrame(rows, _RESULTS).coalesce(1)

    def _note(self, entries: dict[str, int], rows: dict[str, int]) -> None:
        aside, dropped = rows.get("quarantined", 0), rows.get("dropped", 0)
        malformed = entries.get("malformed", 0)
        mode = self._pipeline.decode.malformed
        self.figures.add(
            Figures(
                entries=entries.get("entries", 0),
                rows=rows.get("rows_in", 0) - aside - dropped,
                malformed=malformed,
                quarantined=aside + (malformed if mode == "quarantine" else 0),
                dropped=dropped + (malformed if mode == "drop" else 0),
                failed={one.name: rows.get(f"fails_{index}", 0) for index, one in enumerate(self._expecting.all)},
            )
        )
