"""A table of PostgreSQL that takes every range once: rows and marker in one transaction.

Spark's JDBC writer fills a staging table of the attempt, which is not logged; then the driver moves its rows over with
one statement, and the marker with them. A task that Spark repeats or speculates may have filled in its rows twice. Each
attempt of a task is one transaction, so the staging table notes by itself, per row, which transaction wrote it, and of
every partition only the rows of one are taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, LiteralString

from tenure.buffer.sinks import Commit
from tenure.errors import Indeterminate, Invalid
from tenure.spark.sinks.postgres_columns import ATTEMPT, PART, Column, columns_of, flattened
from tenure.spark.sinks.postgres_dsn import Address
from tenure.spark.sinks.postgres_errors import from_a_task, translated
from tenure.spark.sinks.protocol import Needs, is_held

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PostgresSink"]

_PACKAGE = "org.postgresql:postgresql:42.7.14"
_NAME_BYTES_MAX = 63
_LOCK_WAIT = "2s"
"""How long the removal of a staging table waits for a task that still writes to it; the next write tries again."""
_IDLE = "60s"
"""How long the transaction of the commit may wait for its driver."""

_COMMITS: LiteralString = """
CREATE TABLE IF NOT EXISTS {commits} (
    buffer text, sink text, target text, low bigint, high bigint, schema_version integer,
    committed_at timestamptz, PRIMARY KEY (buffer, sink, target))
"""


class PostgresSink:
    """Rows in ``table`` (``name`` or ``schema.name``) at ``url``; it is made where it is not there.

    Columns may join later; those of a table that is there keep their types, and what is written is cast to them.
    ``connections_max`` is how many tasks write at once. The password is best left in ``PGPASSWORD``.
    Raises Invalid for an address or a name that cannot be one.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        name: str = "postgres",
        schema_version: int = 1,
        connections_max: int = 8,
        rows_per_insert: int = 5_000,
    ) -> None:
        if connections_max < 1 or rows_per_insert < 1:
            raise Invalid("connections_max and rows_per_insert are numbers from 1 on")
        self.name = name
        self.schema_version = schema_version
        self._address = Address(url)
        self._schema, self._table = _split(table)
        self._connections_max = connections_max
        self._rows_per_insert = rows_per_insert

    def __repr__(self) -> str:
        return f"PostgresSink({str(self._address)!r}, {self._target!r}, name={self.name!r})"

    @property
    def _target(self) -> str:
        return f"{self._schema}.{self._table}"

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """PostgreSQL's JDBC driver, the same for every Spark."""
        return Needs((_PACKAGE,))

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """What the marker's row says. Raises Overloaded where the database cannot be asked now, Denied where it may
        not be.
        """
        with self._connected() as connection:
            return self._marked(connection, buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> None:
        """Fill a staging table, then move its rows and the marker in one transaction.

        Raises Conflict (``sink_moved``), Invalid for rows that the table cannot take, Denied where the user may not,
        Overloaded where the database refuses for now, Indeterminate where the answer to the commit was lost.
        """
        import psycopg

        columns = columns_of(frame.schema)
        staging = self._staging(commit)
        with self._connected() as connection:
            if is_held(commit, self._marked(connection, commit.buffer, commit.sink)):
                return
            self._prepare(connection, staging, columns)
        try:
            self._fill(frame, columns, staging)
        except Exception as error:
            # A successor that has committed the range removes the table that this driver is filling.
            if self._holds(commit):
                return
            if (refused := from_a_task(error, self._address)) is not None:
                raise refused from None
            raise
        with self._connected() as connection:
            self._commit(connection, commit, columns, staging)
            with contextlib.suppress(psycopg.Error):  # the rows are there; what is left now the next write removes
                self._clean(connection, commit)

    # Spark

    def _fill(self, frame: DataFrame, columns: list[Column], staging: str) -> None:
        options = self._address.jdbc() | {
            "dbtable": f'"{self._schema}"."{staging}"',
            "numPartitions": str(self._connections_max),
            "batchsize": str(self._rows_per_insert),
            "isolationLevel": "READ_COMMITTED",  # one transaction for each attempt of a task
            "reWriteBatchedInserts": "true",
        }
        flattened(frame, columns).write.format("jdbc").options(**options).mode("append").save()

    # PostgreSQL

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection whose errors are Tenure's, and hold no password."""
        import psycopg

        try:
            with contextlib.closing(psycopg.connect(**self._address.psycopg(), autocommit=True)) as connection:  # type: ignore[arg-type]
                yield connection
        except psycopg.Error as error:
            raise translated(error, self._address) from None

    def _marked(self, connection: psycopg.Connection[Any], buffer: str, sink: str) -> int | None:
        present = connection.execute("SELECT to_regclass(%s)", [f'"{self._schema}".tenure_commits']).fetchone()
        if present is None or present[0] is None:
            return None
        row = connection.execute(self._sql(_SELECT), [buffer, sink, self._target]).fetchone()
        return None if row is None else row[0]

    def _holds(self, commit: Commit) -> bool:
        with self._connected() as connection:
            return is_held(commit, self._marked(connection, commit.buffer, commit.sink))

    def _prepare(self, connection: psycopg.Connection[Any], staging: str, columns: list[Column]) -> None:
        """The table of markers, and the attempt's own."""
        from psycopg import sql

        with connection.transaction():
            # Two that make a table at once would collide in the catalogue.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('tenure_commits'))")
            connection.execute(self._sql(_COMMITS))
        fields = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.staged)) for c in columns]
        own = sql.SQL("{} integer, {} bigint DEFAULT txid_current()").format(
            sql.Identifier(PART), sql.Identifier(ATTEMPT)
        )
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(
                sql.Identifier(self._schema, staging), sql.SQL(", ").join([*fields, own])
            )
        )

    def _commit(self, connection: psycopg.Connection[Any], commit: Commit, columns: list[Column], staging: str) -> None:
        """Rows and marker, in one transaction."""
        import psycopg
        from psycopg import sql

        connection.autocommit = False
        # A driver that is stopped in here must not hold the marker for ever.
        connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(sql.Literal(_IDLE)))
        identity = [commit.buffer, commit.sink, self._target]
        connection.execute(self._sql(_CLAIM), identity)
        row = connection.execute(self._sql(_SELECT + " FOR UPDATE"), identity).fetchone()
        if is_held(commit, row[0] if row is not None else None):
            connection.rollback()
        else:
            types = self._widen(connection, columns)
            connection.execute(self._move(staging, columns, types))
            connection.execute(self._sql(_UPDATE), [commit.low, commit.high, commit.schema_version, *identity])
            try:
                connection.commit()
            except psycopg.OperationalError as error:
                text = self._address.scrubbed(str(error)).strip()
                raise Indeterminate(f"the answer to the commit of {commit} was lost: {text}") from None
        connection.autocommit = True

    def _widen(self, connection: psycopg.Connection[Any], columns: list[Column]) -> dict[str, str]:
        """Make the table where it is not there, and the columns that it has not; the types that it has."""
        from psycopg import sql

        fields = [sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(c.final)) for c in columns]
        target = sql.Identifier(self._schema, self._table)
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(target, sql.SQL(", ").join(fields)))
        types = self._types(connection)
        for column, field in zip(columns, fields, strict=True):
            if column.name not in types:
                connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(target, field))
        return types

    def _types(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        found = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [f'"{self._schema}"."{self._table}"'],
        )
        return dict(found.fetchall())

    def _move(self, staging: str, columns: list[Column], types: dict[str, str]) -> sql.Composed:
        """From staging to the table: of each partition the rows of one transaction, cast to what the table has."""
        from psycopg import sql

        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
        values = sql.SQL(", ").join(
            sql.SQL("s.{}::{}").format(sql.Identifier(c.name), sql.SQL(types.get(c.name, c.final))) for c in columns
        )
        return sql.SQL(
            "INSERT INTO {target} ({names}) SELECT {values} FROM {staging} s JOIN "
            "(SELECT {part}, min({attempt}) AS {attempt} FROM {staging} GROUP BY {part}) one USING ({part}, {attempt})"
        ).format(
            target=sql.Identifier(self._schema, self._table),
            names=names,
            values=values,
            staging=sql.Identifier(self._schema, staging),
            part=sql.Identifier(PART),
            attempt=sql.Identifier(ATTEMPT),
        )

    def _clean(self, connection: psycopg.Connection[Any], commit: Commit) -> None:
        """Drop the staging tables of attempts whose range is held: none of them can be committed any more."""
        import psycopg
        from psycopg import sql

        last = self._marked(connection, commit.buffer, commit.sink)
        prefix = self._slot(commit)
        found = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)",
            [self._schema, prefix],
        )
        for (name,) in found.fetchall():
            if last is None or int(name.removeprefix(prefix).partition("_")[0], 16) > last:
                continue
            with contextlib.suppress(psycopg.Error), connection.transaction():
                connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_WAIT)))
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self._schema, name)))

    def _slot(self, commit: Commit) -> str:
        identity = f"{commit.buffer}/{commit.sink}/{self._target}"
        return f"tenure_staging_{hashlib.sha256(identity.encode()).hexdigest()[:12]}_"

    def _staging(self, commit: Commit) -> str:
        return f"{self._slot(commit)}{commit.high:x}_{secrets.token_hex(6)}"

    def _sql(self, text: LiteralString) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(text).format(commits=sql.Identifier(self._schema, "tenure_commits"))


_SELECT: LiteralString = "SELECT high FROM {commits} WHERE buffer = %s AND sink = %s AND target = %s"
_CLAIM: LiteralString = "INSERT INTO {commits} (buffer, sink, target) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_UPDATE: LiteralString = (
    "UPDATE {commits} SET low = %s, high = %s, schema_version = %s, committed_at = now() "
    "WHERE buffer = %s AND sink = %s AND target = %s"
)


def _split(table: str) -> tuple[str, str]:
    """Schema and name. Raises Invalid."""
    schema, _, name = table.rpartition(".")
    for part in (schema or "public", name):
        if not part or len(part.encode()) > _NAME_BYTES_MAX or set(part) & set('"\0.'):
            raise Invalid(f"not the name of a table: {table!r}; use name or schema.name")
    return schema or "public", name
