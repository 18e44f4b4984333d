"""DuckDB's own reading of what was sent, and of the tables that a pipeline made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tenure.buffer import blocking
from tenure.spark.sinks.files.table import files

__all__ = ["Truth"]

_COLUMNS = (
    'id, rev, op, epoch("at") AS moment, month, carrier, tailnum, origin, dest, distance, dep_delay, arr_delay, fare, '
    "air_time, plan.hour AS hour, plan.gate AS gate"
)
# What is sent is one column of text: no character of it separates anything.
_LINES = "read_csv({files}, columns = {{'line': 'VARCHAR'}}, delim = '\\x07', quote = '', escape = '', header = false)"
_EVENTS = """
CREATE TABLE events AS SELECT
    seq, index, line, json_valid(line) AS sound,
    CASE WHEN sound THEN from_json(line, '{
        "id": "BIGINT", "rev": "INTEGER", "op": "VARCHAR", "at": "TIMESTAMPTZ", "month": "INTEGER",
        "carrier": "VARCHAR", "tailnum": "VARCHAR", "origin": "VARCHAR", "dest": "VARCHAR", "distance": "INTEGER",
        "dep_delay": "INTEGER", "arr_delay": "INTEGER", "fare": "DECIMAL(10,2)", "air_time": "INTEGER",
        "plan": {"hour": "INTEGER", "gate": "VARCHAR"}}') END AS event
FROM held
"""
# Of the rows of a range that agree in the keys one stays; a row that lacks a key is no duplicate of any.
_JUDGED = """
CREATE TABLE judged AS SELECT
    seq, index, line, sound, event.*,
    sound AND event.id IS NOT NULL AND row_number() OVER (
        PARTITION BY low, sound, event.id, event.rev ORDER BY seq DESC, index DESC) > 1 AS is_duplicate,
    coalesce(event.distance >= 4900, false) AS is_far,
    {refuses_nul} AND contains(concat(event.tailnum, event.plan.gate), chr(0)) AS has_nul,
    CASE WHEN NOT sound THEN 'malformed'
        WHEN event.id IS NULL OR event.dep_delay > 360 OR has_nul THEN concat_ws(', ',
            CASE WHEN event.id IS NULL THEN 'has-id' END,
            CASE WHEN event.dep_delay > 360 THEN 'in-time' END,
            CASE WHEN is_far THEN 'near' END,
            CASE WHEN has_nul THEN 'no NUL' END) END AS aside
FROM events JOIN ranges ON seq BETWEEN low AND high
"""
_KEPT = "judged WHERE sound AND NOT is_duplicate AND aside IS NULL AND NOT is_far"


class Truth:
    """What the tables of a home must hold, by the lines of these files and by the ranges in which they were read.

    With ``refuses_nul`` the table stores no text with a zero character: its row is set aside.
    """

    def __init__(self, home: Path, url: str, sent: Sequence[Path], *, refuses_nul: bool = False) -> None:
        self._home = home
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute(f"CREATE TABLE sent AS FROM {_LINES.format(files=[str(path) for path in sent])}")
        entries = _entries(url)
        self._db.register("entries", entries)
        self._db.execute("CREATE TABLE held AS SELECT seq, index, decode(entry) AS line FROM entries")
        ranges = "SELECT DISTINCT low, high, passed + failed AS rows FROM read_parquet({})"
        self._db.execute(f"CREATE TABLE ranges AS {ranges.format(_list(files(home / 'tables/expectations')))}")
        self._db.execute(_EVENTS)
        self._db.execute(_JUDGED.format(refuses_nul=refuses_nul))

    def check_buffer(self) -> None:
        """The buffer has each line that was sent, as often as it was sent; each is in one range of the pipeline."""
        self._same("SELECT line FROM sent", "SELECT line FROM held")
        assert self._one("SELECT count(*) FROM judged") == self._one("SELECT count(*) FROM sent")

    def check_quarantine(self) -> None:
        """Each row that was set aside is there once, with its entry as it was sent."""
        aside = "SELECT seq, index, aside, line FROM judged WHERE aside IS NOT NULL AND NOT is_duplicate"
        found = f"read_parquet({_list(files(self._home / 'tables/quarantine'))})"
        self._same(aside, f"SELECT seq, index, reason, decode(entry) FROM {found}")

    def check_rows(self, table: str) -> None:
        """A table that is appended to holds each row that was kept, once. ``table`` is a relation of DuckDB's."""
        self._same(f"SELECT {_COLUMNS} FROM {_KEPT}", f"SELECT {_COLUMNS} FROM {table}")

    def check_newest(self, table: str) -> None:
        """A table that is merged into holds the newest row of each key, and none of a key that was deleted."""
        newest = f"SELECT * FROM {_KEPT} QUALIFY row_number() OVER (PARTITION BY id ORDER BY seq DESC, index DESC) = 1"
        self._same(f"SELECT {_COLUMNS} FROM ({newest}) WHERE op <> 'delete'", f"SELECT {_COLUMNS} FROM {table}")

    def check_balance(self) -> dict[str, int]:
        """Count what became of the entries: they are the sum of all else. Each term occurs."""
        terms = {
            "entries": "true",
            "malformed": "NOT sound",
            "duplicates": "is_duplicate",
            "quarantined": "sound AND NOT is_duplicate AND aside IS NOT NULL",
            "dropped": "sound AND NOT is_duplicate AND aside IS NULL AND is_far",
            "rows": _KEPT.partition("WHERE ")[2],
        }
        found = {name: self._one(f"SELECT count(*) FROM judged WHERE {what}") for name, what in terms.items()}
        assert all(found.values()), found
        assert found["entries"] == sum(found.values()) - found["entries"], found
        return found

    def register(self, name: str, table: pa.Table) -> str:
        """Make a table of Arrow's known to DuckDB, under this name."""
        self._db.register(name, table)
        return name

    def sums(self, table: str) -> tuple[Any, ...]:
        """What a person compares: rows, keys and sums of a relation."""
        what = "count(*), count(DISTINCT id), sum(fare), sum(distance), sum(dep_delay), sum(air_time), sum(plan.hour)"
        row = self._db.execute(f"SELECT {what} FROM {table}").fetchone()
        assert row is not None
        return row

    def _same(self, expected: str, found: str) -> None:
        for one, other, what in ((expected, found, "missing"), (found, expected, "too many")):
            rest = f"({one}) EXCEPT ALL ({other})"
            count = self._one(f"SELECT count(*) FROM ({rest})")
            assert not count, (what, count, self._db.execute(f"{rest} LIMIT 3").fetchall())

    def _one(self, query: str) -> int:
        row = self._db.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def _entries(url: str) -> pa.Table:
    """Every entry that the buffer keeps, with its position."""
    parts: list[pa.Table] = []
    with blocking.Consumer(url, group="truth") as consumer:
        while (batch := consumer.next_batch()) is not None:
            count = len(batch.entries)
            columns = [[batch.seq] * count, range(count), batch.entries]
            kinds = (pa.int64(), pa.int64(), pa.binary())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            parts.append(pa.table(arrays, names=["seq", "index", "entry"]))
    return pa.concat_tables(parts)


def _list(paths: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{path.removeprefix('file://')}'" for path in paths) + "]"
