"""The figures of a pipeline's ranges: what came in, what went out, and what each stage changed."""

from __future__ import annotations

import msgspec

from tenure.spark.jobs.balance import Stage

__all__ = ["Change", "Figures", "less", "plus"]

_SUMS = ("entries", "rows", "malformed", "quarantined", "dropped", "duplicates")


class Change(msgspec.Struct, frozen=True):
    """The rows that went into a stage and that came out of it; None where that is not known."""

    rows_in: int | None
    rows_out: int | None


class Figures(msgspec.Struct, kw_only=True):
    """Counts of the entries of one range, or of several; None where one of them is not known.

    The first stage takes the entries, the last one returns the rows, and in between each takes what the one before it
    returned.
    """

    entries: int | None = 0
    rows: int | None = 0
    """Rows in the table."""
    malformed: int | None = 0
    quarantined: int | None = 0
    """Rows that were set aside, and with malformed = "quarantine" malformed entries."""
    dropped: int | None = 0
    """Rows that expectations dropped, and with malformed = "drop" malformed entries."""
    duplicates: int | None = None
    """Rows that deduplication left out."""
    failed: dict[str, int | None] = {}
    """Rows that did not meet an expectation, by its name."""
    stages: dict[str, Change] = {}
    """What each stage did to the number of rows, in their order."""
    unchecked: list[str] = []
    """Terms of the balance for which a count was missing, in one range at least."""

    @property
    def balance(self) -> dict[str, int | None]:
        """Return what became of the entries, in counts that add up to them: the rows, and what each stage left out.

        A stage that added rows has a count below 0.
        """
        left_out = {name: less(change.rows_in, change.rows_out) for name, change in self.stages.items()}
        return {"rows": self.rows, **left_out}

    def add(self, more: Figures) -> None:
        for name in _SUMS:
            setattr(self, name, plus(getattr(self, name), getattr(more, name)))
        for name, count in more.failed.items():
            self.failed[name] = plus(self.failed.get(name, 0), count)
        for name, change in more.stages.items():
            before = self.stages.get(name, Change(0, 0))
            rows_in, rows_out = plus(before.rows_in, change.rows_in), plus(before.rows_out, change.rows_out)
            self.stages[name] = Change(rows_in, rows_out)
        self.unchecked += [term for term in more.unchecked if term not in self.unchecked]

    @staticmethod
    def changes(stages: tuple[Stage, ...]) -> dict[str, Change]:
        """Return stages as figures."""
        return {stage.name: Change(stage.rows_in, stage.rows_out) for stage in stages}


def less(one: int | None, other: int | None) -> int | None:
    """Return the difference of two counts, None where one is not known."""
    return None if one is None or other is None else one - other


def plus(one: int | None, other: int | None) -> int | None:
    """Return the sum of two counts, None where one is not known."""
    return None if one is None or other is None else one + other
