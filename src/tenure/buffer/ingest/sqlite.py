"""A table of SQLite as a sink: rows and sequence in one transaction.

The sequence is in ``tenure_ingest`` of the same database. A write reads it first, within its transaction, so a repeat
stores nothing and a gap is refused, also while other writers run.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tenure.buffer.ingest.sink import Commit, Outcome, Written, unwritten
from tenure.errors import Invalid

__all__ = ["SqliteSink"]

T = TypeVar("T")

_PROGRESS = """
create table if not exists tenure_ingest (
    buffer text not null, sink text not null, high integer not null, schema_version integer not null,
    primary key (buffer, sink)
)
"""


class SqliteSink:
    """A sink for tuples, the parameters of ``insert``, such as ``insert into t (a, b) values (?, ?)``.

    ``create`` creates the table if absent. All work runs in one thread of its own; ``busy_ms`` is how long a write
    waits for another connection's lock before it is tried again.

    >>> import asyncio
    >>> from tenure.buffer import Commit, SqliteSink
    >>> async def main():
    ...     sink = SqliteSink(":memory:", create="create table t (a)", insert="insert into t values (?)")
    ...     written = await sink.write(Commit("buffer-1", sink.name, 0, 0, sink.schema_version), [[(1,), (2,)]])
    ...     last = await sink.last_committed("buffer-1")
    ...     await sink.close()
    ...     return written.outcome.name, last
    >>> asyncio.run(main())
    ('COMMITTED', 0)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        insert: str,
        create: str = "",
        name: str = "sqlite",
        schema_version: int = 1,
        busy_ms: int = 5_000,
    ) -> None:
        self.name = name
        self.schema_version = schema_version
        self._path = str(path)
        self._insert = insert
        self._create = create
        self._busy_ms = busy_ms
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tenure-sqlite")
        self._connection: sqlite3.Connection | None = None

    async def last_committed(self, buffer: str) -> int | None:
        """Return the sequence that the database holds. Raises Invalid where the database cannot be used."""
        return await self._run(lambda: self._ask(buffer))

    async def write(self, commit: Commit, parts: Sequence[Sequence[tuple[Any, ...]]]) -> Written:
        """Insert the rows and move the sequence, in one transaction."""
        return await self._run(lambda: self._write(commit, parts))

    async def check_committed(self, commit: Commit) -> bool:
        """Return whether the sequence has come that far."""
        return commit.is_held_by(await self.last_committed(commit.buffer))

    async def close(self) -> None:
        """Close the database."""
        await self._run(self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # In the thread

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = sqlite3.connect(self._path, timeout=self._busy_ms / 1000, isolation_level=None)
                self._connection.execute("pragma journal_mode = wal")
                self._connection.execute("pragma synchronous = full")
                self._connection.execute(_PROGRESS)
                if self._create:
                    self._connection.execute(self._create)
            except sqlite3.Error as error:
                self._close()
                raise Invalid(f"{self._path} cannot be used as a sink: {error}") from error
        return self._connection

    def _ask(self, buffer: str) -> int | None:
        connection = self._open()
        try:
            return self._last(connection, buffer)
        except sqlite3.Error as error:
            raise Invalid(f"{self._path} cannot be read: {error}") from error

    def _last(self, connection: sqlite3.Connection, buffer: str) -> int | None:
        asked = "select high from tenure_ingest where buffer = ? and sink = ?"
        row = connection.execute(asked, (buffer, self.name)).fetchone()
        return None if row is None else int(row[0])

    def _write(self, commit: Commit, parts: Sequence[Sequence[tuple[Any, ...]]]) -> Written:
        try:
            connection = self._open()
            connection.execute("begin immediate")
        except (sqlite3.OperationalError, Invalid) as error:  # locked by another connection, or unreachable
            return Written(Outcome.NOT_COMMITTED, str(error))
        try:
            answer = unwritten(commit, self._last(connection, commit.buffer))
            if answer is not None:
                connection.execute("rollback")
                return answer
            for rows in parts:
                connection.executemany(self._insert, rows)
            connection.execute(
                "insert or replace into tenure_ingest values (?, ?, ?, ?)",
                (commit.buffer, self.name, commit.high, commit.schema_version),
            )
        except sqlite3.Error as error:
            self._give_up(connection)
            is_transient = isinstance(error, sqlite3.OperationalError) and _is_transient(error)
            return Written(Outcome.NOT_COMMITTED if is_transient else Outcome.FATAL, str(error))
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            self._give_up(connection)
            return Written(Outcome.MAYBE_COMMITTED, str(error))
        return Written(Outcome.COMMITTED)

    def _give_up(self, connection: sqlite3.Connection) -> None:
        """Roll back; where that fails too, close, and a new connection finds out what the file holds."""
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("rollback")
            return
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_transient(error: sqlite3.OperationalError) -> bool:
    """Return whether a lock or a full disk stood in the way, rather than the statement itself."""
    codes = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in codes
