"""A table of PostgreSQL that takes every range once: rows and marker in one transaction.

Spark's JDBC writer fills a staging table of the attempt; then the driver moves its rows over with one statement, and
the marker with them (`staging`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, LiteralString, get_args

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Denied, Indeterminate, Invalid, Overloaded, TenureError
from tenure.spark.jobs.causes import transient_error
from tenure.spark.sinks.postgres.columns import Column, Taken, columns_of, flatten, taken_by
from tenure.spark.sinks.postgres.dsn import Address
from tenure.spark.sinks.postgres.nul import OnNul
from tenure.spark.sinks.postgres.staging import Staging, drop_held
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql
    from pyspark.sql import DataFrame, SparkSession

    from tenure.spark.sinks.postgres.dsn import Address

__all__ = ["PostgresSink", "translate", "translate_task"]

# By the first two characters of SQLSTATE.
_DENIED = {"28"}
_INVALID = {"22", "23", "42", "3D", "3F", "0A"}
_LATER = {"08", "40", "53", "55", "57", "25"}
_HOLDS_NUL = 'a text holds a NUL, which PostgreSQL cannot store: replace it, or set on_nul = "replace" ({})'
# A task's error comes as text: JDBC's exception, and a message without a SQLSTATE.
_FROM_JDBC = re.compile(r"PSQLException: (?:ERROR|FATAL)?:? ?([^\n]+)")
_AWAY = ("onnection", "the database system is", "terminating", "slots", "I/O error", "deadlock", "No space left")


def translate(error: psycopg.Error, address: Address) -> TenureError:
    """Return Tenure's error for one of the database, outside of the commit itself: nothing was changed."""
    text = f"{address}: {address.scrub(str(error)).strip()}"
    state = error.sqlstate or ""
    if state[:2] in _DENIED or state == "42501" or "authentication failed" in text:
        return Denied(text, code="postgres_denied")
    if state == "22P05" and r"\u0000" in text:
        return Invalid(_HOLDS_NUL.format(text), code="sink_rejected")
    if state[:2] in _INVALID:
        return Invalid(text, code="sink_rejected")
    if not state or state[:2] in _LATER:
        return Overloaded(text, code="postgres_unavailable")
    return Indeterminate(text)


def translate_task(error: Exception, address: Address) -> TenureError | None:
    """Return Tenure's error for the database's error in a task of Spark's; None for any other error."""
    found = _FROM_JDBC.search(str(error))
    if found is None and "FAILED_JDBC.CONNECTION" in str(error):
        return Overloaded(f"{address}: Spark cannot connect", code="postgres_unavailable")
    if found is None:
        return None
    text = f"{address}: {address.scrub(found[1])}"
    if "0x00" in text:
        return Invalid(_HOLDS_NUL.format(text), code="sink_rejected")
    if "authentication failed" in text or "permission denied" in text:
        return Denied(text, code="postgres_denied")
    if any(sign in text for sign in _AWAY):
        return Overloaded(text, code="postgres_unavailable")
    return Invalid(text, code="sink_rejected")


_PACKAGE = "org.postgresql:postgresql:42.7.14"
_NAME_BYTES_MAX = 63
_IDLE = "60s"
"""The longest wait of the commit's transaction for its driver."""

_COMMITS: LiteralString = """
CREATE TABLE IF NOT EXISTS {commits} (
    buffer text, sink text, target text, low bigint, high bigint, schema_version integer,
    committed_at timestamptz, PRIMARY KEY (buffer, sink, target))
"""


class PostgresSink:
    """A sink for ``table`` (``name`` or ``schema.name``) at ``url``; it is created if absent.

    Columns may join later; those of an existing table keep their types, and what is written is cast to them.
    ``connections_max`` is how many tasks write at once. A NUL in a text, which PostgreSQL has not, is stored as U+FFFD,
    or refused with the whole range where ``on_nul`` is ``refuse``. The password is best left in ``PGPASSWORD``. Raises
    Invalid for a malformed address or name.

    >>> from tenure.spark import PostgresSink
    >>> PostgresSink("postgresql://etl@db/sales", "public.orders").name
    'postgres'
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
        on_nul: OnNul = "replace",
    ) -> None:
        if connections_max < 1 or rows_per_insert < 1:
            raise Invalid("connections_max and rows_per_insert are numbers from 1 on")
        if on_nul not in get_args(OnNul):
            raise Invalid(f"on_nul is one of {', '.join(get_args(OnNul))}, not {on_nul!r}")
        self.name = name
        self.schema_version = schema_version
        self._address = Address(url)
        self._schema, self._table = _split(table)
        self._connections_max = connections_max
        self._rows_per_insert = rows_per_insert
        self._on_nul = on_nul

    def __repr__(self) -> str:
        return f"PostgresSink({str(self._address)!r}, {self._target!r}, name={self.name!r})"

    @property
    def _target(self) -> str:
        return f"{self._schema}.{self._table}"

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return PostgreSQL's JDBC driver, the same for every Spark."""
        return Needs((_PACKAGE,))

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the sequence in the marker's row.

        Raises Overloaded where the database cannot be asked now, Denied where the user may not ask.
        """
        with self._connect() as connection:
            return self._read_marker(connection, buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Fill a staging table, then move its rows and the marker in one transaction; return the rows it inserted.

        Raises Conflict (``sink_moved``), Invalid for rows that the table cannot take, Denied where the user may not,
        Overloaded where the database refuses for now, Indeterminate where the answer to the commit was lost.
        """
        import psycopg

        columns = columns_of(frame.schema)
        staging = Staging.of(commit, self._schema, self._table)
        with self._connect() as connection:
            if is_held(commit, self._read_marker(connection, commit.buffer, commit.sink)):
                return None
            self._prepare(connection)
            staging.create(connection, columns)
        try:
            self._fill(frame, columns, staging)
        except Exception as error:
            # A successor that has committed the range removes the table that this driver is filling.
            if self._holds(commit):
                return None
            refused = translate_task(error, self._address) or transient_error(error, f"{commit} is not in the table")
            if refused is not None:
                raise refused from None
            raise
        with self._connect() as connection:
            stored = self._commit(connection, commit, columns, staging)
            with contextlib.suppress(psycopg.Error):  # the rows are there; the next write removes what is left now
                last = self._read_marker(connection, commit.buffer, commit.sink)
                drop_held(connection, staging, last=last)
        return stored

    # Spark

    def _fill(self, frame: DataFrame, columns: list[Column], staging: Staging) -> None:
        options = self._address.jdbc() | {
            "dbtable": f'"{self._schema}"."{staging.name}"',
            "batchsize": str(self._rows_per_insert),
            "isolationLevel": "READ_COMMITTED",  # one transaction for each attempt of a task
            "reWriteBatchedInserts": "true",
        }
        # With `numPartitions` Spark asks for the rows' partitions first, and an observation would be of that question.
        rows = flatten(frame, columns, on_nul=self._on_nul).coalesce(self._connections_max)
        rows.write.format("jdbc").options(**options).mode("append").save()

    # PostgreSQL

    @contextlib.contextmanager
    def _connect(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a connection whose errors are Tenure's, and contain no password."""
        import psycopg

        try:
            with contextlib.closing(psycopg.connect(**self._address.psycopg(), autocommit=True)) as connection:  # type: ignore[arg-type]
                yield connection
        except psycopg.Error as error:
            raise translate(error, self._address) from None

    def _read_marker(self, connection: psycopg.Connection[Any], buffer: str, sink: str) -> int | None:
        present = connection.execute("SELECT to_regclass(%s)", [f'"{self._schema}".tenure_commits']).fetchone()
        if present is None or present[0] is None:
            return None
        row = connection.execute(self._sql(_SELECT), [buffer, sink, self._target]).fetchone()
        return None if row is None else row[0]

    def _holds(self, commit: Commit) -> bool:
        with self._connect() as connection:
            return is_held(commit, self._read_marker(connection, commit.buffer, commit.sink))

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Create the table of markers if absent."""
        with connection.transaction():
            # Two that create a table at once would collide in the catalogue.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('tenure_commits'))")
            connection.execute(self._sql(_COMMITS))

    def _commit(
        self, connection: psycopg.Connection[Any], commit: Commit, columns: list[Column], staging: Staging
    ) -> int | None:
        """Move rows and marker in one transaction, and return the rows; None where the table holds the range.

        Raises Overloaded (``staging_lost``) where the rows are gone.
        """
        import psycopg
        from psycopg import sql

        connection.autocommit = False
        # A driver that is stopped here must not hold the marker for ever.
        connection.execute(sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(sql.Literal(_IDLE)))
        connection.execute(_WAIT_FOR_DISK)
        identity = [commit.buffer, commit.sink, self._target]
        connection.execute(self._sql(_CLAIM), identity)
        row = connection.execute(self._sql(_SELECT + " FOR UPDATE"), identity).fetchone()
        stored: int | None = None
        if is_held(commit, row[0] if row is not None else None):
            connection.rollback()
        else:
            staging.demand_whole(connection)
            taken = self._widen(connection, columns)
            staging.demand_kept(connection, taken)
            stored = connection.execute(staging.move(self._table, taken)).rowcount
            about_to_publish(stored)
            connection.execute(self._sql(_UPDATE), [commit.low, commit.high, commit.schema_version, *identity])
            try:
                connection.commit()
            except psycopg.OperationalError as error:
                text = self._address.scrub(str(error)).strip()
                raise Indeterminate(f"the answer to the commit of {commit} was lost: {text}") from None
        connection.autocommit = True
        return stored

    def _widen(self, connection: psycopg.Connection[Any], columns: list[Column]) -> list[Taken]:
        """Create the table if absent, and the columns that it lacks; return which column takes which."""
        from psycopg import sql

        target = sql.Identifier(self._schema, self._table)

        def field(name: str, kind: str) -> sql.Composed:
            return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))

        fields = sql.SQL(", ").join(field(column.name, column.final) for column in columns)
        connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(target, fields))
        taken = taken_by(self._types(connection), columns)
        for one in taken:
            if one.joins:
                connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(target, field(one.target, one.kind)))
        return taken

    def _types(self, connection: psycopg.Connection[Any]) -> dict[str, str]:
        return dict(connection.execute(_TYPES, [f'"{self._schema}"."{self._table}"']).fetchall())

    def _sql(self, text: LiteralString) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(text).format(commits=sql.Identifier(self._schema, "tenure_commits"))


# A domain as the type that it is made of: a cast to the domain would cut what its limit is too short for.
_TYPES: LiteralString = """
WITH RECURSIVE made_of AS (
    SELECT attname, atttypid AS kind, atttypmod AS modifier FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT attname, typbasetype, typtypmod FROM made_of JOIN pg_type ON pg_type.oid = kind WHERE typtype = 'd'
)
SELECT attname, format_type(kind, modifier) FROM made_of JOIN pg_type ON pg_type.oid = kind WHERE typtype <> 'd'
"""
# What is acknowledged must be on disk, also where the database answers before it is.
_WAIT_FOR_DISK: LiteralString = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
_SELECT: LiteralString = "SELECT high FROM {commits} WHERE buffer = %s AND sink = %s AND target = %s"
_CLAIM: LiteralString = "INSERT INTO {commits} (buffer, sink, target) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_UPDATE: LiteralString = (
    "UPDATE {commits} SET low = %s, high = %s, schema_version = %s, committed_at = now() "
    "WHERE buffer = %s AND sink = %s AND target = %s"
)


def _split(table: str) -> tuple[str, str]:
    """Return schema and name. Raises Invalid."""
    schema, _, name = table.rpartition(".")
    for part in (schema or "public", name):
        if not part or len(part.encode()) > _NAME_BYTES_MAX or set(part) & set('"\0.'):
            raise Invalid(f"not the name of a table: {table!r}; use name or schema.name")
    return schema or "public", name
