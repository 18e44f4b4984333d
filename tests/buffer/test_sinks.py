"""A table takes rows and sequence together, knows what it holds, and says what became of a write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tenure.buffer.ingest.delta import ArrowDeltaSink
from tenure.buffer.ingest.sink import Commit, Outcome
from tenure.buffer.ingest.sqlite import SqliteSink
from tenure.errors import Invalid
from tests.buffer.ingesting import SCHEMA, delta_rows, delta_sink, sqlite_rows, sqlite_sink

Rows = Callable[[int], Any]


def tuples(number: int) -> list[tuple[int, int]]:
    return [(number, 10 * number), (number, 10 * number + 1)]


def table(number: int) -> pa.Table:
    return pa.table({"seq": [number] * 2, "number": [10 * number, 10 * number + 1]}, schema=SCHEMA)


class Case:
    """A kind of table: how to open it again, how to make rows, and how to read it past the sink."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.rows: Rows = tuples if kind == "sqlite" else table

    def open(self) -> Any:
        return sqlite_sink(self.path) if self.kind == "sqlite" else delta_sink(self.path)

    def read(self) -> list[int]:
        return sqlite_rows(self.path) if self.kind == "sqlite" else delta_rows(self.path)


@pytest.fixture(params=["sqlite", "delta"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(tmp_path / "table", request.param)


def commit(low: int, high: int, *, buffer: str = "B", sink: str = "s") -> Commit:
    return Commit(buffer, sink, low, high, 1)


@pytest.mark.parametrize(
    ("last", "held", "follows"), [(None, False, True), (3, False, False), (4, False, True), (7, True, False)]
)
def test_commit_knows_whether_a_table_holds_it_and_whether_it_comes_next(
    last: int | None, held: bool, follows: bool
) -> None:
    assert (commit(5, 7).is_held_by(last), commit(5, 7).follows(last)) == (held, follows)


async def test_a_table_knows_what_it_holds_after_it_was_opened_again(case: Case) -> None:
    sink = case.open()
    assert await sink.last_committed("B") is None
    written = await sink.write(commit(0, 1), [case.rows(0), case.rows(1)])
    assert written.outcome is Outcome.COMMITTED
    await sink.close()
    sink = case.open()
    assert await sink.last_committed("B") == 1
    assert await sink.last_committed("another buffer") is None
    assert await sink.check_committed(commit(0, 1))
    assert not await sink.check_committed(commit(2, 2))
    await sink.close()
    assert case.read() == [0, 1, 10, 11]


async def test_a_commit_that_is_there_is_not_stored_again(case: Case) -> None:
    sink = case.open()
    for _ in range(3):
        assert (await sink.write(commit(0, 0), [case.rows(0)])).outcome is Outcome.COMMITTED
    await sink.close()
    assert case.read() == [0, 1]


async def test_a_stale_writer_stores_nothing_twice(case: Case) -> None:
    """A zombie that was fenced in the buffer and still holds rows: the table itself refuses them."""
    new, old = case.open(), case.open()
    await old.write(commit(0, 0), [case.rows(0)])
    await new.write(commit(1, 3), [case.rows(1), case.rows(2), case.rows(3)])
    assert (await old.write(commit(1, 2), [case.rows(1), case.rows(2)])).outcome is Outcome.COMMITTED
    assert (await old.write(commit(2, 5), [case.rows(2)])).outcome is Outcome.FATAL
    for sink in (new, old):
        await sink.close()
    assert case.read() == [0, 1, 10, 11, 20, 21, 30, 31]


async def test_a_gap_is_refused_for_good(case: Case) -> None:
    sink = case.open()
    await sink.write(commit(0, 0), [case.rows(0)])
    written = await sink.write(commit(2, 2), [case.rows(2)])
    assert written.outcome is Outcome.FATAL
    assert "does not follow" in written.why
    await sink.close()
    assert case.read() == [0, 1]


async def test_batches_without_a_row_move_the_sequence_too(case: Case) -> None:
    sink = case.open()
    nothing: Sequence[Any] = [[]] if case.kind == "sqlite" else [SCHEMA.empty_table()]
    assert (await sink.write(commit(0, 4), nothing)).outcome is Outcome.COMMITTED
    assert await sink.last_committed("B") == 4
    await sink.close()


async def test_two_sinks_share_a_table_under_names_of_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        lake = ArrowDeltaSink(tmp_path / "lake", SCHEMA, name=name)
        assert (await lake.write(commit(0, 0, sink=name), [table(0)])).outcome is Outcome.COMMITTED
        assert await lake.last_committed("B") == 0
    assert delta_rows(tmp_path / "lake") == [0, 0, 1, 1]


async def test_rows_that_do_not_fit_the_table_are_fatal_and_leave_nothing(tmp_path: Path) -> None:
    lake = delta_sink(tmp_path / "lake")
    other = pa.table({"something": ["else"]})
    assert (await lake.write(commit(0, 0), [other])).outcome is Outcome.FATAL
    sink = sqlite_sink(tmp_path / "db")
    assert (await sink.write(commit(0, 0), [[(0, 0), (1,)]])).outcome is Outcome.FATAL
    assert await sink.last_committed("B") is None
    await sink.close()
    assert sqlite_rows(tmp_path / "db") == delta_rows(tmp_path / "lake") == []


async def test_a_locked_database_did_not_commit_and_may_be_asked_again(tmp_path: Path) -> None:
    sink = SqliteSink(
        tmp_path / "db", insert="insert into t values (?)", create="create table if not exists t (a)", busy_ms=1
    )
    assert await sink.last_committed("B") is None
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    other.execute("begin immediate")
    assert (await sink.write(commit(0, 0), [[(1,)]])).outcome is Outcome.NOT_COMMITTED
    other.execute("rollback")
    other.close()
    assert (await sink.write(commit(0, 0), [[(1,)]])).outcome is Outcome.COMMITTED
    await sink.close()


async def test_a_database_that_is_no_longer_one_cannot_tell_and_says_so(tmp_path: Path) -> None:
    """Ingest asks again later then: what SQLite raises by itself would end the run."""
    sink = sqlite_sink(tmp_path / "table")
    assert (await sink.write(commit(0, 0), [tuples(0)])).outcome is Outcome.COMMITTED
    other = sqlite3.connect(tmp_path / "table")
    other.execute("drop table tenure_ingest")
    other.close()
    with pytest.raises(Invalid, match="cannot be read"):
        await sink.check_committed(commit(0, 0))
    await sink.close()


async def test_a_table_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database, and long enough to be sure of it" * 10)
    sink = sqlite_sink(tmp_path / "file")
    with pytest.raises(Invalid):
        await sink.last_committed("B")
    await sink.close()
    with pytest.raises(Invalid):
        await delta_sink(tmp_path / "file").last_committed("B")
