"""A Delta table as a sink without Delta's connector: rows go through the driver and delta-rs. For small ranges.

The marker is the same application transaction that `DeltaSink` writes, so a table may move from one to the other.
delta-rs cannot write tables with deletion vectors; a MERGE by key is not offered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.buffer.ingest.sink import Commit, Outcome, says_disk_full
from tenure.errors import Indeterminate, Invalid, Overloaded
from tenure.objects.background import background
from tenure.spark.sinks.arguments import column_names
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held
from tenure.spark.sinks.refusals import disk_full
from tenure.spark.sinks.to_driver import BYTES_MAX, ROWS_MAX, to_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SmallDelta"]

_LOOKED_AT_MAX = 8


class SmallDelta:
    """A sink by which the driver appends rows to the Delta table at ``where``, a path or a URL.

    A range of more than ``rows_max`` rows or ``bytes_max`` bytes (in Arrow) is refused. ``storage_options`` go to
    deltalake as they are; keys are better left in the provider's usual environment. Raises Invalid for a malformed
    place.

    >>> from tenure.spark import SmallDelta
    >>> SmallDelta("s3://lake/orders").name
    'delta'
    """

    def __init__(
        self,
        where: str | Path,
        *,
        name: str = "delta",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        evolve: bool = True,
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if rows_max < 1 or bytes_max < 1:
            raise Invalid("rows_max and bytes_max are numbers from 1 on")
        self.name = name
        self.schema_version = schema_version
        place = Place(where)
        self._uri = str(place.local) if place.local is not None else place.url.partition("?")[0]
        self._partition_by = column_names(partition_by)
        self._evolve = evolve
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._storage_options = dict(storage_options or {})

    def __repr__(self) -> str:
        return f"SmallDelta({self._uri!r}, name={self.name!r})"

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return no needs: it needs nothing of Spark."""
        return Needs()

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the newest application transaction in the table's log.

        Raises Invalid for a table that delta-rs cannot read, Indeterminate where the storage cannot be asked now.
        """
        return self._last(buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Collect the rows, then append them in one commit of the table; return what its history says of them.

        Raises Conflict (``sink_moved``), Invalid (``too_large_for_driver``, ``sink_rejected``), Overloaded
        (``table_busy``) where another writer came between, Indeterminate where the outcome is unknown.
        """
        from tenure.buffer.ingest.delta import ArrowDeltaSink

        if is_held(commit, self._last(commit.buffer, commit.sink)):
            return None
        rows = to_driver(frame, rows_max=self._rows_max, bytes_max=self._bytes_max)
        table = ArrowDeltaSink(
            self._uri,
            rows.schema,
            name=commit.sink,
            partition_by=self._partition_by,
            schema_mode="merge" if self._evolve else None,
            storage_options=self._storage_options,
        )
        about_to_publish(rows.num_rows)
        written = background().run(table.write(commit, [rows]))
        if written.outcome is Outcome.COMMITTED or is_held(commit, self._last(commit.buffer, commit.sink)):
            return self._stored(commit)
        if says_disk_full(written.why):
            raise disk_full(commit, written.why)
        match written.outcome:
            case Outcome.NOT_COMMITTED:
                raise Overloaded(written.why, code="table_busy")
            case Outcome.MAYBE_COMMITTED:
                raise Indeterminate(written.why)
            case _:
                raise Invalid(f"the table cannot take the rows of {commit}: {written.why}", code="sink_rejected")

    def _stored(self, commit: Commit) -> int | None:
        """Return the rows that the commit added; None where it is no longer among the newest of the table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        with suppress(DeltaError, OSError):  # the rows are there
            history = DeltaTable(self._uri, storage_options=self._storage_options or None).history(_LOOKED_AT_MAX)
            for entry in history:
                if entry.get("tenure_commit") == str(commit):
                    return int(entry["operationMetrics"]["num_added_rows"])
        return None

    def _last(self, buffer: str, sink: str) -> int | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            table = DeltaTable(self._uri, storage_options=self._storage_options or None)
        except TableNotFoundError:
            return None
        except OSError as error:
            raise Indeterminate(f"{self._uri} cannot be asked now: {error}") from error
        except DeltaError as error:
            raise Invalid(f"{self._uri} cannot be used as a Delta table: {error}") from error
        return table.transaction_version(f"tenure/{buffer}/{sink}")
