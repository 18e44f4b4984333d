"""The balance of a job without a pipeline: entries of the manifest, through a transformation, into a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from tenure.buffer.ingest.sink import Commit
from tenure.spark.jobs.balance import Account, Stage, demand_balance
from tenure.spark.jobs.counts import ROWS, Counting
from tenure.spark.sinks.protocol import SparkSink, audited, merges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BalancedWrite", "CountingSink", "Transform"]

Transform = Callable[["DataFrame"], "DataFrame"]

_DECODED: Final = "entries"
_GIVEN: Final = "rows"


@runtime_checkable
class CountingSink(SparkSink, Protocol):
    """A sink that has stages of its own, and balances what it writes by itself."""

    def write_counted(self, frame: DataFrame, commit: Commit, *, entries: int | None) -> None:
        """Write as ``write`` does, a range of which the manifest has so many entries."""
        ...


class BalancedWrite:
    """One write of a range; ``entries`` is what the manifest says, None where that is not known.

    Without a transformation the rows are the entries, and nothing is counted but by the table.
    """

    def __init__(self, sink: SparkSink, frame: DataFrame, *, entries: int | None, transform: Transform | None) -> None:
        self._sink, self._entries = sink, entries
        self._counting = Counting([])
        self._transforms = transform is not None
        self.rows = frame
        """The rows for the sink."""
        if transform is not None:
            counted = self._counting.observe(_DECODED, frame)
            self.rows = self._counting.observe(_GIVEN, transform(counted))

    def store(self, commit: Commit) -> None:
        """Write the rows. Raises as the sink does, and Conflict (``unbalanced``)."""
        if isinstance(self._sink, CountingSink):
            entries = None if self._transforms else self._entries
            self._sink.write_counted(self.rows, commit, entries=entries)
            return
        with audited(lambda rows: self._settle(commit, rows, published=False)):
            stored = self._sink.write(self.rows, commit)
        self._settle(commit, stored, published=True)

    def _settle(self, commit: Commit, stored: int | None, *, published: bool) -> None:
        account = self._account(stored)
        for only in (_DECODED, None):
            if next(account.differences(), None) is not None:
                self._counting.recount(only)
                account = self._account(stored)
        demand_balance(account, commit, published=published)

    def _account(self, stored: int | None) -> Account:
        stages: tuple[Stage, ...] = ()
        decoded, given = self._of(_DECODED), self._of(_GIVEN)
        if decoded == 0 and (self._entries or stored):  # another action's answer
            self._counting.distrust()
            decoded = given = None
        if self._transforms:
            stages = (Stage("transform", decoded, given),)
        if merges(self._sink):
            stages = (*stages, Stage("merge", given, None))
        return Account(entries=self._entries, decoded=decoded, stages=stages, stored=stored)

    def _of(self, place: str) -> int | None:
        found = self._counting.found(place)
        return None if found is None else found[ROWS]
