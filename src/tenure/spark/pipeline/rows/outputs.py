"""The sink of a pipeline: the raw rows of a range go into up to three tables, into each of them once.

The quarantine and the results of expectations are tables of their own, with markers of their own. They are written
before the main one, and the range is acknowledged after it. After a crash in between, the range comes again, and each
table skips what it holds: what is in the main table is therefore always in the others too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Indeterminate
from tenure.spark.jobs.causes import named_causes
from tenure.spark.jobs.counts import ROWS, Counting, Found, count_now
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.file.sink import make_sink, side_table
from tenure.spark.pipeline.rows.expectations import ExpectationSet, with_whole_entries
from tenure.spark.pipeline.rows.figures import Figures
from tenure.spark.pipeline.rows.ledger import DECODED, EXPECTED, EntriesOf, Ledger
from tenure.spark.pipeline.rows.set_aside import RECORDS, quarantine_rows, records_of
from tenure.spark.pipeline.rows.stages import Stages, without_malformed
from tenure.spark.sinks.protocol import Needs, SparkSink, audited, is_held
from tenure.spark.toml_lines import problems_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tenure.spark.sinks.files.table import FileTable

__all__ = ["Outputs"]

_RESULTS: Final = (
    "pipeline string, expectation string, otherwise string, passed long, failed long, low long, high long, ts timestamp"
)


_NOT_OBSERVED: Final = ("small_delta", "small_iceberg")
"""Tables whose rows the driver fetches part by part, which Spark counts as no action at all."""


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
        self.figures = Figures(duplicates=0)
        self.entries_of: Callable[[Commit, bool], int | None] = lambda _commit, _careful: None
        """Returns the entries of a commit as `EntriesOf` does, where no range writer says how many there are."""
        self.accepted: frozenset[tuple[int, int]] = frozenset()
        """Ranges that are written although they do not balance."""
        self.on_begin: Callable[[int | None], None] | None = None
        """Called once with what the main table holds, before anything is read or written."""
        self.on_write: Callable[[Commit], None] | None = None
        """Called with every commit after it, where no range writer reports it."""

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return what all of the tables need."""
        all_needs = [sink.needs(spark_version) for sink in (self._main, *self._sides.values())]
        packages = dict.fromkeys(package for needs in all_needs for package in needs.packages)
        conf = {key: value for needs in reversed(all_needs) for key, value in needs.conf.items()}
        return Needs(tuple(packages), conf)

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return what the main table holds. Raises what ``on_begin`` raises."""
        last = self._main.last_committed(spark, buffer)
        if self.on_begin is not None:
            self.on_begin(last)
            self.on_begin = None
        return last

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
        """Decode, transform and check the rows, then write them, side tables first. Raises as ``write_counted``."""
        self._write(frame, commit, partial(self.entries_of, commit))
        if self.on_write is not None:
            self.on_write(commit)

    def write_counted(self, frame: DataFrame, commit: Commit, *, entries: int | None) -> None:
        """Write a range of which the manifest has so many entries, and see that it balances.

        Raises as the main sink does, Conflict (``expectation_failed``) before anything is written, Conflict
        (``unbalanced``), Invalid (``bad_step``, ``bad_schema``).
        """
        self._write(frame, commit, lambda _: entries)

    def _write(self, frame: DataFrame, commit: Commit, entries_of: EntriesOf) -> None:
        if is_held(commit, self.last_committed(frame.sparkSession, commit.buffer)):
            return
        held: list[DataFrame] = []
        accepted = (commit.low, commit.high) in self.accepted
        ledger = Ledger(self._pipeline, entries_of, held=held, accepted=accepted)
        try:
            with named_causes(f"the range {commit.low} to {commit.high} was not written"):
                self._write_tables(frame, commit, ledger)
        finally:
            for rows in held:
                rows.unpersist()

    def _write_tables(self, raw: DataFrame, commit: Commit, ledger: Ledger) -> None:
        entries = ledger.count_entries(self._stages.decode(raw))
        rows = entries if self._pipeline.decode.malformed == "column" else without_malformed(entries)
        marked = self._expecting.mark(self._stages.transform(rows, ledger.count_stage), self._stages)
        first = self._expecting.needs_rows_twice or self._pipeline.sink.kind in _NOT_OBSERVED
        marked = ledger.count_expected(marked, self._expecting.figures(), first=first)
        if first:
            marked = self._check(marked, ledger.counts)
            ledger.settle(commit, aside=None, published=False)
        aside = self._write_sides(raw, entries, marked, commit, ledger)
        if first:
            ledger.settle(commit, aside=aside, published=False)
        with audited(lambda rows: _settled(ledger, commit, rows, aside)):
            stored = self._write_main(self._expecting.good(marked), commit)
        account = ledger.settle(commit, stored=stored, aside=aside, published=True)
        self.figures.add(ledger.figures(account))

    def _check(self, marked: DataFrame, counts: Counting) -> DataFrame:
        """Return the rows, those of an entry together. Raises Conflict (``expectation_failed``)."""
        found = _known(counts.found(EXPECTED))
        self._expecting.stop_on_failure(marked, found)
        if self._expecting and self._expecting.needs_whole_entries(marked, found):
            marked = with_whole_entries(marked)
            counts.replace(EXPECTED, count_now(marked, self._expecting.figures() | records_of(marked)))
        else:
            counts.replace(EXPECTED, {RECORDS: found.get("quarantined", 0)})
        return marked

    def _write_main(self, rows: DataFrame, commit: Commit) -> int | None:
        """Write the main table; return what it stored, None where the answer was lost and the table holds it."""
        try:
            return self._main.write(rows, commit)
        except Indeterminate:
            if is_held(commit, self.last_committed(rows.sparkSession, commit.buffer)):
                return None
            raise

    def _write_sides(
        self, raw: DataFrame, entries: DataFrame, marked: DataFrame, commit: Commit, ledger: Ledger
    ) -> tuple[int | None, int | None] | None:
        """Write the side tables; return how many records were to go to the quarantine, and how many it stored."""
        aside: tuple[int | None, int | None] | None = None
        for kind, side in self._sides.items():
            own = Commit(commit.buffer, side.name, commit.low, commit.high, side.schema_version)
            if kind == "expectations":
                side.write(self._results(marked.sparkSession, _known(ledger.counts.found(EXPECTED)), commit), own)
                continue
            malformed = self._pipeline.decode.malformed == "quarantine"
            failing = self._expecting.set_aside(marked)
            count = _known(ledger.counts.found(DECODED))["malformed"] if malformed else 0
            count += 0 if failing is None else _known(ledger.counts.found(EXPECTED))[RECORDS]
            if count == 0 and side.last_committed(marked.sparkSession, commit.buffer) is not None:
                side.skip(own)
                aside = (0, 0)
                continue
            names = [one.name for one in self._expecting.all]
            records = quarantine_rows(raw, entries if malformed else None, failing, names=names, count=count)
            aside = (count, side.write(records, own))
        return aside

    def _results(self, spark: SparkSession, counts: Found, commit: Commit) -> DataFrame:
        now = datetime.now(UTC)
        rows = []
        for index, expect in enumerate(self._pipeline.expect):
            failed = counts[f"fails_{index}"]
            passed = counts[ROWS] - failed
            rows.append(
                (self._pipeline.name, expect.name, expect.otherwise, passed, failed, commit.low, commit.high, now)
            )
        return spark.createDataFrame(rows, _RESULTS).coalesce(1)


def _settled(ledger: Ledger, commit: Commit, rows: int, aside: tuple[int | None, int | None] | None) -> None:
    """Compare what is about to be published. Raises as ``Ledger.settle``."""
    ledger.settle(commit, stored=rows, aside=aside, published=False)


def _known(found: Found | None) -> Found:
    """Return the figures of persisted rows, which are always known."""
    assert found is not None
    return found
