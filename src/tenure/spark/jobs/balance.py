"""The balance of a range: what leaves one place enters the next, from the manifest to the table.

A range passes stages, each of which may add or take rows by its name. Between two stages nothing may change, so the
counts that are taken there must be equal::

    entries of the manifest = entries decoded = rows into the first stage
    rows out of a stage = rows into the next
    rows out of the last stage = rows that the table stored

A count that could not be taken is None: what it would have been compared with is then *unchecked*, which is reported,
and is neither an alarm nor a balance.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict

__all__ = ["Account", "Difference", "Stage", "demand_balance"]


class Stage(msgspec.Struct, frozen=True):
    """A stage that may change the number of rows: how many it took, and how many it returned."""

    name: str
    rows_in: int | None
    rows_out: int | None


class Difference(NamedTuple):
    """Two counts that must be equal and are not, each with what was counted."""

    term: str
    before: tuple[str, int]
    after: tuple[str, int]

    def __str__(self) -> str:
        (first, one), (second, other) = self.before, self.after
        return f"{one:,} {first}, and {other:,} {second}"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one range, None where one is not known."""

    entries: int | None = None
    """By the manifest."""
    decoded: int | None = None
    """Entries that were read."""
    stages: tuple[Stage, ...] = ()
    given: int | None = None
    """Rows that were counted on their own before they were written."""
    stored: int | None = None
    """Rows, by the table's own count."""
    aside: tuple[int | None, int | None] | None = None
    """Records for the quarantine, and those that it stored; None where there is no quarantine."""

    @property
    def rows(self) -> int | None:
        """Return the rows in the table: its own count, or else the one of the rows that it was given."""
        return self.stored if self.stored is not None else _known(self._terms()[len(self.stages)])

    @property
    def filled(self) -> tuple[Stage, ...]:
        """Return the stages, with counts that follow from their neighbours."""
        terms = self._terms()
        return tuple(
            Stage(stage.name, _known(terms[number]), _known(terms[number + 1]))
            for number, stage in enumerate(self.stages)
        )

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Return the terms that say nothing: fewer than two counts, or not the manifest's or the table's own."""
        terms = self._terms()
        few = {term.name for term in terms if sum(count is not None for _, count in term.counts) < 2}
        if self.entries is None:
            few.add(terms[0].name)
        if self.stored is None:
            few.add(terms[len(self.stages)].name)
        return tuple(term.name for term in terms if term.name in few)

    def differences(self) -> Iterator[Difference]:
        """Yield every two counts that contradict each other, in the order of the stages."""
        for term in self._terms():
            known = [(said, count) for said, count in term.counts if count is not None]
            for before, after in pairwise(known):
                if before[1] != after[1]:
                    yield Difference(term.name, before, after)

    def _terms(self) -> list[_Term]:
        counts: list[tuple[str, int | None]] = [
            ("entries in the manifest", self.entries),
            ("entries decoded", self.decoded),
        ]
        name, terms = "entries", list[_Term]()
        for stage in self.stages:
            terms.append(_Term(name, [*counts, (f"rows into {stage.name}", stage.rows_in)]))
            name, counts = stage.name, [(f"rows out of {stage.name}", stage.rows_out)]
        counts += [("rows given to the table", self.given), ("rows stored by the table", self.stored)]
        terms.append(_Term("rows" if self.stages else name, counts))
        if self.aside is not None:
            wanted, stored = self.aside
            terms.append(_Term("quarantine", [("records for the quarantine", wanted), ("stored by it", stored)]))
        return terms


class _Term(NamedTuple):
    """Counts that must be equal, and what each of them is."""

    name: str
    counts: list[tuple[str, int | None]]


def _known(term: _Term) -> int | None:
    return next((count for _, count in term.counts if count is not None), None)


def demand_balance(account: Account, commit: Commit, *, published: bool) -> None:
    """Raise Conflict (``unbalanced``) for the first two counts that contradict each other.

    ``published`` says whether the table holds the range already.
    """
    found = next(account.differences(), None)
    if found is None:
        return
    where = "The table holds the range" if published else "Nothing of the range is in the table"
    raise Conflict(
        f"batches {commit.low} to {commit.high} do not balance ({found.term}): {found}. {where}, and it is not "
        "acknowledged: the buffer keeps it. See 'unbalanced' in docs/reference/spark-errors.md",
        code="unbalanced",
        term=found.term,
        before=found.before[1],
        after=found.after[1],
        low=commit.low,
        high=commit.high,
        published=published,
    )
