"""A Delta table as a sink: each commit carries its sequence as an application transaction.

Data files, which are Parquet, become visible with the same commit that moves the sequence. Two writers that start from
the same version collide in the table's log, and one of them fails. So neither a repeat nor a stale writer stores
anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tenure.buffer.ingest.sink import Commit, Outcome, Written, says_disk_full, unwritten
from tenure.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

__all__ = ["ArrowDeltaSink"]


class ArrowDeltaSink:
    """A sink that appends pyarrow tables of ``schema`` to a Delta table, which it creates if absent.

    ``storage_options`` go to deltalake as they are; keys are better left in the provider's usual environment.

    >>> import asyncio, tempfile
    >>> import pyarrow as pa
    >>> from tenure.buffer import ArrowDeltaSink, Commit
    >>> async def main(directory):
    ...     sink = ArrowDeltaSink(directory, pa.schema([("a", pa.int64())]))
    ...     await sink.write(Commit("buffer-1", sink.name, 0, 0, sink.schema_version), [pa.table({"a": [1, 2]})])
    ...     return await sink.last_committed("buffer-1")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     asyncio.run(main(directory))
    0
    """

    def __init__(
        self,
        uri: str | Path,
        schema: pa.Schema,
        *,
        name: str = "delta",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        schema_mode: Literal["merge"] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.schema_version = schema_version
        self._uri = str(uri)
        self._schema = schema
        self._partition_by = list(partition_by)
        self._schema_mode: Literal["merge"] | None = schema_mode
        self._storage_options = dict(storage_options or {})

    async def last_committed(self, buffer: str) -> int | None:
        """Return the sequence of the last application transaction. Raises Invalid where the table cannot be opened."""
        return await asyncio.to_thread(lambda: self._last(self._table(), buffer))

    async def write(self, commit: Commit, parts: Sequence[pa.Table]) -> Written:
        """Append the rows in one commit of the table."""
        return await asyncio.to_thread(self._write, commit, parts)

    async def check_committed(self, commit: Commit) -> bool:
        """Return whether the table's log has come that far."""
        return commit.is_held_by(await self.last_committed(commit.buffer))

    async def close(self) -> None:
        """Do nothing: the sink holds nothing between calls."""

    # In a thread

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable.create(
                self._uri,
                schema=self._schema,
                mode="ignore",
                partition_by=self._partition_by or None,
                storage_options=self._storage_options or None,
            )
        except (DeltaError, OSError) as error:
            raise Invalid(f"{self._uri} cannot be used as a Delta table: {error}") from error

    def _last(self, table: DeltaTable, buffer: str) -> int | None:
        return table.transaction_version(self._application(buffer))

    def _application(self, buffer: str) -> str:
        return f"tenure/{buffer}/{self.name}"

    def _write(self, commit: Commit, parts: Sequence[pa.Table]) -> Written:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            table = self._table()
        except Invalid as error:
            return Written(Outcome.NOT_COMMITTED, error.message)
        answer = unwritten(commit, self._last(table, commit.buffer))
        if answer is not None:
            return answer
        try:
            self._append(table, commit, parts)
        except CommitFailedError as error:  # another writer came first; or the answer of the store was lost
            return Written(Outcome.MAYBE_COMMITTED, str(error))
        except OSError as error:
            return Written(Outcome.MAYBE_COMMITTED, str(error))
        except (DeltaError, ValueError, TypeError) as error:
            # delta-rs reports a full disk as an error of Parquet's. Another write may succeed.
            outcome = Outcome.MAYBE_COMMITTED if says_disk_full(str(error)) else Outcome.FATAL
            return Written(outcome, str(error))
        return Written(Outcome.COMMITTED)

    def _append(self, table: DeltaTable, commit: Commit, parts: Sequence[pa.Table]) -> None:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake

        rows = pa.concat_tables(parts) if parts else self._schema.empty_table()
        about: dict[str, Any] = {"tenure_commit": str(commit)}
        transaction = Transaction(self._application(commit.buffer), commit.high)
        write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode=self._schema_mode,
            commit_properties=CommitProperties(custom_metadata=about, app_transactions=[transaction]),
        )
