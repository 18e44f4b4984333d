"""The ledger of one range: where a pipeline counts its rows, and the account that follows from these counts.

Rows are counted where they were decoded, and at every stage that may change their number: after a step, at the
deduplication, at the expectations. A stage tells apart what it keeps and what it leaves out in the same pass, so
between two stages there are two counts of the same rows, by two places of Spark's plan.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tenure.buffer.ingest.sink import Commit
from tenure.spark.decode import MALFORMED
from tenure.spark.jobs.balance import Account, Stage, demand_balance
from tenure.spark.jobs.counts import ROWS, Counting, can_observe
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.rows.deduplicate import DUPLICATES
from tenure.spark.pipeline.rows.expectations import expects_of
from tenure.spark.pipeline.rows.figures import Figures, less, plus

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["DECODED", "EXPECTED", "EntriesOf", "Ledger"]

log = logging.getLogger("tenure.spark")

DECODED: Final = "entries"
EXPECTED: Final = "expectations"
_DEDUPLICATED: Final = "deduplicate"
_GENERATOR: Final = re.compile(r"(?i)\b(?:explode|posexplode|inline|stack|json_tuple|variant_explode)(?:_outer)?\s*\(")
"""A function of SQL that makes several rows of one, in what a topic selects."""


EntriesOf = Callable[[bool], int | None]
"""Returns the entries of a range by the manifest, None where it does not say; with True whatever the cost."""


class Ledger:
    """The counts of one range, whose entries by the manifest are asked for.

    With ``accepted`` it is written whether they balance or not.
    """

    def __init__(
        self, pipeline: Pipeline, entries_of: EntriesOf, *, held: list[DataFrame], accepted: bool = False
    ) -> None:
        self.counts = Counting(held)
        self._pipeline, self._entries_of = pipeline, entries_of
        self._entries = entries_of(False)
        self._accepted = accepted
        self._merges = pipeline.sink.mode == "merge"
        self._by_query = any(step.python is None for step in pipeline.step)
        self._expects = expects_of(pipeline)
        followed = pipeline.deduplicate is not None or bool(self._expects)
        # The stage after the last step counts the same rows.
        self._uncounted = f"step {len(pipeline.step)}" if followed else None

    def count_entries(self, entries: DataFrame) -> DataFrame:
        """Return decoded entries, counted."""
        from pyspark.sql import functions as f

        figures = {"malformed": f.count(MALFORMED)}
        observable = can_observe(entries, through_views=self._by_query or self._merges)
        if self._pipeline.decode.malformed == "quarantine" or not observable:
            return self.counts.persist(DECODED, entries, figures)
        return self.counts.observe(DECODED, entries, figures)

    def count_stage(self, name: str, rows: DataFrame, figures: dict[str, Column]) -> DataFrame:
        """Return the rows of a stage, counted."""
        if name == self._uncounted:
            return rows
        return self._observe(name, rows, figures, by_query=self._by_query and name != _DEDUPLICATED)

    def count_expected(self, marked: DataFrame, figures: dict[str, Column], *, first: bool) -> DataFrame:
        """Return the rows that expectations have marked, counted; with ``first`` before anything is written."""
        if first:
            return self.counts.persist(EXPECTED, marked, figures)
        return self._observe(EXPECTED, marked, figures) if figures else marked

    def settle(
        self, commit: Commit, *, stored: int | None = None, aside: tuple[int | None, int | None] | None, published: bool
    ) -> Account:
        """Return the account of the range. Raises Conflict (``unbalanced``), after a second count, where it is wrong.

        ``published`` says whether the table holds the range already.
        """
        found = self.counts.found(DECODED)
        if found is not None and found[ROWS] == 0 and (self._entries or stored):
            self.counts.distrust()
        account = self._account(stored, aside)
        # A step that does not read all it gets shows at the entries alone: later ones need not come out the same twice.
        for only in (DECODED, None):
            if next(account.differences(), None) is not None:
                self._entries = self._entries_of(True)
                self.counts.recount(only)
                account = self._account(stored, aside)
        if self._accepted:
            for each in account.differences():
                log.warning("batches %s to %s were accepted as they are: %s", commit.low, commit.high, each)
        else:
            demand_balance(account, commit, published=published)
        return account

    def figures(self, account: Account) -> Figures:
        """Return the figures of a settled range."""
        mode, malformed = self._pipeline.decode.malformed, self._of(DECODED, "malformed")
        aside, dropped = (self._of(EXPECTED, name) if self._expects else 0 for name in ("quarantined", "dropped"))
        return Figures(
            entries=account.entries if account.entries is not None else account.decoded,
            rows=account.rows,
            malformed=malformed,
            quarantined=plus(aside, malformed) if mode == "quarantine" else aside,
            dropped=plus(dropped, malformed) if mode == "drop" else dropped,
            duplicates=0 if self._pipeline.deduplicate is None else self._of(_DEDUPLICATED, DUPLICATES),
            failed={one.name: self._of(EXPECTED, f"fails_{index}") for index, one in enumerate(self._expects)},
            stages=Figures.changes(account.filled),
            unchecked=[*account.unchecked, *(each.term for each in account.differences())],
        )

    def _observe(self, name: str, rows: DataFrame, figures: dict[str, Column], *, by_query: bool = False) -> DataFrame:
        return self.counts.observe(name, rows, figures, through_views=by_query or self._merges)

    def _account(self, stored: int | None, aside: tuple[int | None, int | None] | None) -> Account:
        return Account(
            entries=self._entries,
            decoded=self._of(DECODED),
            stages=tuple(self._stages()),
            given=None if self._expects else self._of(EXPECTED),
            stored=stored,
            aside=aside,
        )

    def _stages(self) -> Iterator[Stage]:
        pipeline, out = self._pipeline, self._of(DECODED)
        if pipeline.decode.malformed != "column":
            before, out = out, less(out, self._of(DECODED, "malformed"))
            yield Stage("malformed", before, out)
        for number in range(1, len(pipeline.step) + 1):
            before, out = out, self._after_step(number)
            yield Stage(f"step {number}", before, out)
        if pipeline.deduplicate is not None:
            before = self._of(_DEDUPLICATED)
            out = less(before, self._of(_DEDUPLICATED, DUPLICATES))
            yield Stage(_DEDUPLICATED, before, out)
        if self._expects:
            before = self._of(EXPECTED)
            out = less(before, plus(self._of(EXPECTED, "quarantined"), self._of(EXPECTED, "dropped")))
            yield Stage(EXPECTED, before, out)
        if self._merges:
            yield Stage("merge", out, None)
        if any(_GENERATOR.search(one) for one in pipeline.sink.select or ()):
            yield Stage("select", out, None)

    def _after_step(self, number: int) -> int | None:
        if f"step {number}" != self._uncounted:
            return self._of(f"step {number}")
        return self._of(EXPECTED if self._pipeline.deduplicate is None else _DEDUPLICATED)

    def _of(self, place: str, name: str = ROWS) -> int | None:
        found = self.counts.found(place)
        return None if found is None else found[name]
