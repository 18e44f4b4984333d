"""Staging tables of the PostgreSQL sink: filled by Spark's tasks, moved into the table by one statement.

A task that Spark repeats or speculates may have inserted its rows twice. Each attempt of a task is one transaction, so
the staging table notes by itself, per row, which transaction wrote it, and of every partition only the rows of one are
taken.

A staging table is UNLOGGED: its rows are written once more anyway. PostgreSQL empties such a table when it restarts
after a crash, and a standby that takes over has it empty. So the first row of a staging table is a sentinel, and a
commit demands it: without the sentinel rows are missing, and the attempt is given up.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid, Overloaded
from tenure.spark.sinks.postgres.columns import ATTEMPT, PART, Column, Taken

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["Staging", "drop_held"]

_LOCK_WAIT = "2s"
"""The longest wait for a task that still writes to a staging table to be dropped; the next write tries again."""
_SHOWN_MAX = 80


class Staging(NamedTuple):
    """The staging table of one attempt: ``prefix`` is common to all attempts of one sink at one table."""

    schema: str
    prefix: str
    name: str

    @classmethod
    def of(cls, commit: Commit, schema: str, table: str) -> Staging:
        """Return a staging table for a new attempt of the commit; its name holds the last sequence."""
        identity = f"{commit.buffer}/{commit.sink}/{schema}.{table}"
        prefix = f"tenure_staging_{hashlib.sha256(identity.encode()).hexdigest()[:12]}_"
        return cls(schema, prefix, f"{prefix}{commit.high:x}_{secrets.token_hex(6)}")

    def create(self, connection: psycopg.Connection[Any], columns: Sequence[Column]) -> None:
        """Create the table, with its sentinel: the one row without a partition."""
        from psycopg import sql

        fields = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.staged)) for c in columns]
        own = sql.SQL("{} integer, {} bigint DEFAULT txid_current()")
        fields.append(own.format(sql.Identifier(PART), sql.Identifier(ATTEMPT)))
        with connection.transaction():
            connection.execute(
                sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(self._identifier, sql.SQL(", ").join(fields))
            )
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) VALUES (NULL)").format(self._identifier, sql.Identifier(PART))
            )

    def demand_whole(self, connection: psycopg.Connection[Any]) -> None:
        """Raise Overloaded (``staging_lost``) where the table lost rows since it was created, or is gone."""
        import psycopg
        from psycopg import sql

        try:
            found = connection.execute(
                sql.SQL("SELECT FROM {} WHERE {} IS NULL").format(self._identifier, sql.Identifier(PART))
            ).rowcount
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            found = 0  # gone with a primary server; and where Spark finds no table, it makes one of its own
        if not found:
            raise Overloaded(
                "PostgreSQL restarted or failed over while the range was written, and emptied the staging table: "
                "nothing of the range is in the table, write it again",
                code="staging_lost",
            )

    def demand_kept(self, connection: psycopg.Connection[Any], columns: Sequence[Taken]) -> None:
        """Raise Invalid (``sink_rejected``) for the first value that would be another one in the table's type."""
        from psycopg import sql

        for one in columns:
            if one.cast.seen_in is None:
                continue
            value, kind, seen_in = sql.Identifier(one.name), sql.SQL(one.kind), sql.SQL(one.cast.seen_in)
            found = connection.execute(
                sql.SQL(
                    "SELECT {value}::text, {value}::{kind}::text FROM {staging} "
                    "WHERE {value}::{kind}::{seen_in} IS DISTINCT FROM {value}::{seen_in} LIMIT 1"
                ).format(value=value, kind=kind, seen_in=seen_in, staging=self._identifier)
            ).fetchone()
            if found is not None:
                given, stored = (text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…" for text in found)
                raise Invalid(
                    f"the table's {one.target} is {one.kind}, where {given!r} would become {stored!r}: convert it in "
                    "the last step (round, substring, CAST), or widen the column of the table",
                    code="sink_rejected",
                )

    def move(self, table: str, columns: Sequence[Taken]) -> sql.Composed:
        """Return the statement that moves one transaction's rows of each partition, cast as far as nothing changes."""
        from psycopg import sql

        names = sql.SQL(", ").join(sql.Identifier(column.target) for column in columns)
        values = sql.SQL(", ").join(
            sql.SQL("s.{}::{}").format(sql.Identifier(column.name), sql.SQL(column.cast.kind)) for column in columns
        )
        return sql.SQL(
            "INSERT INTO {target} ({names}) SELECT {values} FROM {staging} s JOIN "
            "(SELECT {part}, min({attempt}) AS {attempt} FROM {staging} GROUP BY {part}) one USING ({part}, {attempt})"
        ).format(
            target=sql.Identifier(self.schema, table),
            names=names,
            values=values,
            staging=self._identifier,
            part=sql.Identifier(PART),
            attempt=sql.Identifier(ATTEMPT),
        )

    @property
    def _identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema, self.name)


def drop_held(connection: psycopg.Connection[Any], staging: Staging, *, last: int | None) -> None:
    """Drop the staging tables of attempts whose range is held: none of them can be committed any more."""
    import psycopg
    from psycopg import sql

    found = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)",
        [staging.schema, staging.prefix],
    )
    for (name,) in found.fetchall():
        if last is None or int(name.removeprefix(staging.prefix).partition("_")[0], 16) > last:
            continue
        with contextlib.suppress(psycopg.Error), connection.transaction():
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_WAIT)))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(staging.schema, name)))
