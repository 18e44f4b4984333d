"""An Iceberg table as a sink without Iceberg's connector: rows go through the driver and pyiceberg. For small ranges.

Rows and marker, in the snapshot and in a table property, are one commit of the table, and it is only taken on top of
the snapshot that the marker was read from: of two drivers that write the same range one fails. `IcebergSink` reads the
same marker, so a table may move from one to the other. A MERGE by key is not offered here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.buffer.ingest.sink import Commit, says_disk_full
from tenure.errors import Indeterminate, Invalid, Overloaded
from tenure.spark.sinks.arguments import column_names
from tenure.spark.sinks.iceberg.marker import Snapshot, held_high, property_of
from tenure.spark.sinks.places import plain_path
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held
from tenure.spark.sinks.refusals import disk_full
from tenure.spark.sinks.to_driver import BYTES_MAX, ROWS_MAX, to_driver

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SmallIceberg"]


class SmallIceberg:
    """A sink by which the driver appends rows to the Iceberg table ``database.table``.

    ``catalog`` configures pyiceberg's catalog (``{"type": "rest", "uri": …}``); with ``warehouse`` it is one in a
    SQLite file in that directory. A range of more than ``rows_max`` rows or ``bytes_max`` bytes (in Arrow) is refused.
    Raises Invalid for arguments that contradict each other.

    >>> from tenure.spark import SmallIceberg
    >>> SmallIceberg("sales.orders", warehouse="/lake").name
    'iceberg'
    """

    def __init__(
        self,
        table: str,
        *,
        name: str = "iceberg",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        evolve: bool = True,
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        catalog: Mapping[str, str] | None = None,
        warehouse: str | Path | None = None,
    ) -> None:
        if "." not in table.strip("."):
            raise Invalid(f"an Iceberg table is named database.table, not {table!r}")
        if (catalog is None) == (warehouse is None):
            raise Invalid("an Iceberg table needs a catalog or a warehouse")
        if rows_max < 1 or bytes_max < 1:
            raise Invalid("rows_max and bytes_max are numbers from 1 on")
        self.name = name
        self.schema_version = schema_version
        self._table = table
        self._partition_by = column_names(partition_by)
        self._evolve = evolve
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._catalog = dict(catalog or {})
        self._warehouse = None if warehouse is None else plain_path(warehouse)

    def __repr__(self) -> str:
        return f"SmallIceberg({self._table!r}, name={self.name!r})"

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return no needs: it needs nothing of Spark."""
        return Needs()

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the last sequence in the main branch's snapshots, or in the table's property.

        Raises Indeterminate where the catalog cannot be asked now.
        """
        return self._last(buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Collect the rows, then append them and the marker in one commit; return what its snapshot says of them.

        Raises Conflict (``sink_moved``), Invalid (``too_large_for_driver``, ``sink_rejected``), Overloaded
        (``table_busy``) where another writer came between, Indeterminate where the outcome is unknown.
        """
        from pyiceberg.exceptions import CommitFailedException

        table = self._load()
        if table is not None and is_held(commit, _marker(table, commit.buffer, commit.sink)):
            return None
        rows = to_driver(frame, rows_max=self._rows_max, bytes_max=self._bytes_max)
        about_to_publish(rows.num_rows)
        try:
            if table is None:
                table = self._create(rows.schema)
                if is_held(commit, _marker(table, commit.buffer, commit.sink)):
                    return None
            self._append(table, rows, commit)
        except CommitFailedException as error:
            if is_held(commit, self._last(commit.buffer, commit.sink)):
                return None
            raise Overloaded(
                f"another writer changed the table while {commit} was written", code="table_busy"
            ) from error
        except (ValueError, TypeError) as error:
            raise Invalid(f"the table cannot take the rows of {commit}: {error}", code="sink_rejected") from error
        except Exception as error:  # any error of a catalog's driver that cannot reach it
            if says_disk_full(str(error)):
                raise disk_full(commit, str(error)) from error
            raise Indeterminate(f"{commit} may not be in the table: {error}") from error
        return _stored(table, commit)

    def _append(self, table: Table, rows: pa.Table, commit: Commit) -> None:
        from pyiceberg.table import TableProperties

        # pyiceberg would repeat a commit on top of another writer's snapshot, which may be the same range: the marker
        # was read from this snapshot, and holds for it alone. This changes the copy in memory, not the table.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        with table.transaction() as transaction:
            if self._evolve:
                with transaction.update_schema() as change:
                    change.union_by_name(rows.schema)
            transaction.set_properties({property_of(commit.buffer, commit.sink): str(commit.high)})
            transaction.append(rows, snapshot_properties={"tenure.commit": str(commit)})

    def _last(self, buffer: str, sink: str) -> int | None:
        table = self._load()
        return None if table is None else _marker(table, buffer, sink)

    def _load(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._open_catalog().load_table(self._table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise Indeterminate(f"the catalog of {self._table} cannot be asked now: {error}") from error

    def _create(self, schema: pa.Schema) -> Table:
        catalog = self._open_catalog()
        catalog.create_namespace_if_not_exists(self._table.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(self._table, schema=schema)
        if self._partition_by and not table.spec().fields and table.current_snapshot() is None:
            with table.update_spec() as change:
                for column in self._partition_by:
                    change.add_identity(column)
        return table

    def _open_catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        if self._warehouse is None:
            return load_catalog("tenure", **self._catalog)
        self._warehouse.mkdir(parents=True, exist_ok=True)
        place = {"uri": f"sqlite:///{self._warehouse}/catalog.db", "warehouse": self._warehouse.as_uri()}
        return load_catalog("tenure", type="sql", **place)


def _marker(table: Table, buffer: str, sink: str) -> int | None:
    remembered = table.properties.get(property_of(buffer, sink))
    snapshots = {each.snapshot_id: _snapshot(each) for each in table.metadata.snapshots}
    return held_high(snapshots, table.metadata.current_snapshot_id, buffer=buffer, sink=sink, remembered=remembered)


def _stored(table: Table, commit: Commit) -> int | None:
    """Return the rows that the commit's snapshot added."""
    head = table.current_snapshot()
    if head is None or head.summary is None or head.summary.additional_properties.get("tenure.commit") != str(commit):
        return None
    return int(head.summary.additional_properties.get("added-records", 0))


def _snapshot(found: IcebergSnapshot) -> Snapshot:
    summary = {} if found.summary is None else found.summary.additional_properties
    staged_as, published_as, noted_as = map(summary.get, ("wap.id", "published-wap-id", "tenure.commit"))
    place = found.snapshot_id, found.parent_snapshot_id, found.timestamp_ms
    return Snapshot(*place, staged_as, published_as, noted_as)
