"""The arithmetic of a range's balance, without Spark."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console

from tenure.buffer.ingest.sink import Commit
from tenure.cli.pipeline.status import run_payload, show_run
from tenure.errors import Conflict
from tenure.spark.jobs.balance import Account, Stage, demand_balance
from tenure.spark.jobs.balanced import BalancedWrite
from tenure.spark.jobs.counts import counted_once
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.pipeline.rows.figures import Change, Figures
from tenure.spark.sinks.protocol import Needs, about_to_publish

COMMIT = Commit("b", "orders", 3, 7, 1)


def broken(account: Account) -> list[tuple[str, int, int]]:
    return [(each.term, each.before[1], each.after[1]) for each in account.differences()]


def test_a_range_without_stages_balances_where_the_table_stored_its_entries() -> None:
    sound = Account(entries=10, stored=10)
    assert (broken(sound), sound.unchecked, sound.rows) == ([], (), 10)
    assert broken(Account(entries=10, stored=9)) == [("entries", 10, 9)]
    assert broken(Account(entries=10, decoded=9, stored=9)) == [("entries", 10, 9)]


def test_a_stage_may_change_rows_by_its_name_and_nothing_may_between_two() -> None:
    stages = (Stage("malformed", 10, 8), Stage("step 1", 8, 20), Stage("deduplicate", 20, 19))
    sound = Account(entries=10, decoded=10, stages=stages, stored=19, aside=(2, 2))
    assert (broken(sound), sound.unchecked, sound.filled) == ([], (), stages)
    lost = (*stages[:2], Stage("deduplicate", 19, 18))
    assert broken(Account(entries=10, decoded=10, stages=lost, stored=18)) == [("step 1", 20, 19)]
    assert broken(Account(entries=10, decoded=10, stages=stages, stored=18)) == [("rows", 19, 18)]
    assert broken(Account(entries=10, decoded=11, stages=stages, stored=19)) == [
        ("entries", 10, 11),
        ("entries", 11, 10),
    ]
    assert broken(Account(entries=10, stages=stages, stored=19, aside=(2, 1))) == [("quarantine", 2, 1)]


def test_what_is_not_known_is_unchecked_and_neither_an_alarm_nor_a_balance() -> None:
    stages = (Stage("step 1", None, None), Stage("deduplicate", 20, 19))
    account = Account(entries=10, stages=stages, stored=None, aside=(None, 0))
    assert (broken(account), account.unchecked) == ([], ("entries", "step 1", "rows", "quarantine"))
    assert account.rows == 19
    assert Account().unchecked == ("entries",)
    assert Account().rows is None


def test_a_count_that_is_missing_between_two_others_hides_no_difference() -> None:
    assert broken(Account(entries=10, decoded=None, stages=(Stage("step 1", 9, 9),), stored=9)) == [("entries", 10, 9)]


def test_an_unknown_count_is_filled_in_from_its_neighbour() -> None:
    account = Account(entries=10, decoded=10, stages=(Stage("step 1", None, None), Stage("step 2", 30, None)), stored=5)
    assert account.filled == (Stage("step 1", 10, 30), Stage("step 2", 30, 5))


@pytest.mark.parametrize(("published", "told"), [(False, "Nothing of the range is in"), (True, "The table holds the")])
def test_the_error_names_the_term_both_numbers_and_the_range(published: bool, told: str) -> None:
    with pytest.raises(
        Conflict, match=r"batches 3 to 7 do not balance \(entries\): 1,000 entries in the mani"
    ) as caught:
        demand_balance(Account(entries=1_000, stored=999), COMMIT, published=published)
    assert told in caught.value.message
    assert "999 rows stored by the table" in caught.value.message
    assert (caught.value.code, caught.value.detail["term"]) == ("unbalanced", "entries")
    demand_balance(Account(entries=1_000, stored=1_000), COMMIT, published=published)


def test_a_source_or_a_table_that_does_not_count_leaves_its_term_unchecked() -> None:
    stages = (Stage("malformed", 10, 8),)
    assert Account(decoded=10, stages=stages, stored=8).unchecked == ("entries",)
    assert Account(entries=10, decoded=10, stages=stages, given=8).unchecked == ("rows",)


def test_a_partition_that_was_counted_twice_makes_the_count_unknown() -> None:
    assert counted_once({"rows": 10, "bad": 2}, [0, 1, 2]) == {"rows": 10, "bad": 2}
    assert counted_once({"rows": 10, "bad": 2}, [0, 1, 1]) is None
    assert counted_once({"rows": 0}, []) == {"rows": 0}


def test_a_plan_that_ran_twice_counted_each_row_twice() -> None:
    assert counted_once({"rows": 10, "bad": 2}, [0, 1, 1, 0]) == {"rows": 5, "bad": 1}
    assert counted_once({"rows": 11}, [0, 1, 1, 0]) is None


class Table:
    """A table that stores so many rows; ``early`` where it counts them before its commit."""

    name, schema_version = "table", 1

    def __init__(self, stored: int | None, *, early: bool, merges: bool = False) -> None:
        self._stored, self._early, self.merges = stored, early, merges
        self.committed = False

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        return Needs()

    def last_committed(self, spark: Any, buffer: str) -> int | None:
        return None

    def write(self, frame: Any, commit: Commit) -> int | None:
        if self._early and self._stored is not None:
            about_to_publish(self._stored)
        self.committed = True
        return self._stored


def stored_by(table: Table, entries: int | None = 10) -> None:
    BalancedWrite(table, cast(Any, None), entries=entries, transform=None).store(COMMIT)


@pytest.mark.parametrize("early", [True, False])
def test_a_table_that_counts_before_its_commit_commits_nothing_that_does_not_balance(early: bool) -> None:
    table = Table(9, early=early)
    with pytest.raises(Conflict) as caught:
        stored_by(table)
    assert (caught.value.code, caught.value.detail["published"], table.committed) == (
        "unbalanced",
        not early,
        not early,
    )
    about_to_publish(1)  # outside of a write there is nobody to ask


def test_a_table_that_does_not_count_or_replaces_rows_by_key_is_not_compared() -> None:
    for table in (Table(None, early=False), Table(3, early=True, merges=True), Table(10, early=True)):
        stored_by(table)
        assert table.committed
    stored_by(Table(9, early=True), entries=None)


def test_the_figures_of_ranges_add_up_and_what_one_does_not_know_the_sum_does_not() -> None:
    total = Figures(duplicates=0)
    stages = Figures.changes((Stage("step 1", 10, 12), Stage("deduplicate", 12, 11)))
    total.add(Figures(entries=10, rows=11, duplicates=1, failed={"sane": 0}, stages=stages))
    total.add(Figures(entries=5, rows=4, duplicates=1, failed={"sane": 2}, stages=stages, unchecked=["rows"]))
    assert (total.entries, total.rows, total.duplicates, total.failed) == (15, 15, 2, {"sane": 2})
    assert total.stages == {"step 1": Change(20, 24), "deduplicate": Change(24, 22)}
    unknown = {"step 1": Change(3, None)}
    total.add(Figures(entries=3, rows=3, malformed=None, failed={"sane": None}, stages=unknown, unchecked=["rows"]))
    total.add(Figures(entries=1, rows=1, malformed=0, failed={"sane": 1}))
    assert (total.entries, total.malformed, total.duplicates, total.failed) == (19, None, None, {"sane": None})
    assert (total.stages["step 1"], total.unchecked) == (Change(23, None), ["rows"])


def test_what_stages_left_out_and_the_rows_add_up_to_the_entries() -> None:
    figures = Figures(entries=10, rows=19)
    figures.stages = {"malformed": Change(10, 8), "step 1": Change(8, 20), "deduplicate": Change(20, 19)}
    assert figures.balance == {"rows": 19, "malformed": 2, "step 1": -12, "deduplicate": 1}
    run = Run(pipeline="p", schedule="once", into="parquet t", high=0, low=0, figures=figures)
    told = io.StringIO()
    show_run(Console(file=told), run_payload(run))
    assert "10 entries + 12 added by step 1 = 19 rows + 2 left out by malformed + 1 left out by deduplicate" in (
        told.getvalue()
    )


def test_a_stage_that_was_not_counted_is_told_as_unknown() -> None:
    figures = Figures(entries=10, rows=None, stages={"merge": Change(10, None)})
    told = io.StringIO()
    show_run(Console(file=told), run_payload(Run(pipeline="p", schedule="once", high=0, low=0, figures=figures)))
    assert "10 entries = an unknown number of rows + unknown left out by merge" in told.getvalue()
