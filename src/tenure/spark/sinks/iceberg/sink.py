"""An Iceberg table as a sink, through Iceberg's own connector for Spark.

Rows are staged as a snapshot that no reader sees, under the identity of the commit, and then published
(write–audit–publish). Iceberg refuses to publish an identity twice, so neither a repeat nor a driver that was given up
for dead adds anything. A MERGE can be published only where the table did not change since it was staged; else it is
done again. What dead attempts have staged is invisible, and goes with ``expire_snapshots``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Indeterminate, Invalid, Overloaded
from tenure.spark.sinks.arguments import column_names, connector_of, quote_name
from tenure.spark.sinks.iceberg.marker import Snapshot, held_high, property_of, wap_id_of
from tenure.spark.sinks.merge import ORDER_BY, check_joining, merge_of
from tenure.spark.sinks.places import plain_path
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held
from tenure.spark.sinks.refusals import condition_of, named_refusals
from tenure.spark.sinks.session_conf import session_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IcebergSink"]

_PACKAGES = {
    (3, 5): "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    (4, 0): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    (4, 1): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_TABLE = re.compile(r"[\w-]+(?:\.[\w-]+){2,}")
_STAGED = "write.wap.enabled"


class IcebergSink:
    """A sink for the Iceberg table ``catalog.database.table``.

    The catalog is the session's own; with ``warehouse``, a directory, it is one of files, for local use. Without
    ``merge_keys`` rows are appended. With them the newest row of each key, by ``order_by``, replaces what the table
    holds under that key, and is deleted where ``delete_when``, SQL over the columns of the rows, is true of it.
    ``evolve`` lets columns join the table. The table is created if absent. Raises Invalid for arguments that contradict
    each other.

    >>> from tenure.spark import IcebergSink
    >>> IcebergSink("lake.sales.orders", merge_keys=["order_id"]).name
    'iceberg'
    """

    def __init__(
        self,
        table: str,
        *,
        name: str = "iceberg",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        merge_keys: Sequence[str] = (),
        delete_when: str | None = None,
        order_by: Sequence[str] = ORDER_BY,
        evolve: bool = True,
        warehouse: str | None = None,
    ) -> None:
        if not _TABLE.fullmatch(table):
            raise Invalid(f"an Iceberg table is named catalog.database.table, not {table!r}")
        self.name = name
        self.schema_version = schema_version
        self._parts = table.split(".")
        self._partition_by = column_names(partition_by)
        self._merge = merge_of(merge_keys, delete_when=delete_when, order_by=order_by)
        self._evolve = evolve
        self._warehouse = warehouse if warehouse is None or "://" in warehouse else str(plain_path(warehouse))

    def __repr__(self) -> str:
        return f"IcebergSink({'.'.join(self._parts)!r}, name={self.name!r})"

    @property
    def merges(self) -> bool:
        """Return whether rows replace each other by key."""
        return self._merge is not None

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return Iceberg's connector, and the catalog where ``warehouse`` asks for one.

        Raises Invalid (``no_connector``) where Iceberg has none for that Spark.
        """
        package = connector_of(
            "Iceberg", _PACKAGES, spark_version, small='SmallIceberg, kind = "small_iceberg" in a pipeline file'
        )
        return Needs((package,), {"spark.sql.extensions": _EXTENSIONS} | self._catalog())

    def _catalog(self) -> dict[str, str]:
        """Return the settings of a catalog of files, where the sink is to have its own."""
        if self._warehouse is None:
            return {}
        key = f"spark.sql.catalog.{self._parts[0]}"
        return {key: _CATALOG, f"{key}.type": "hadoop", f"{key}.warehouse": self._warehouse}

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the newest of our snapshots in the main branch, or the table property where they have expired."""
        return self._last(spark, buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Stage the rows, then publish them; return what the snapshot says of rows that were appended.

        Raises Conflict (``sink_moved``), Invalid (``sink_rejected``) for rows that the table cannot take, Overloaded
        (``table_busy``) where another writer came between, Indeterminate where the outcome is unknown.
        """
        spark = frame.sparkSession
        if self._merge is not None:
            self._merge.check(frame.columns)

        def holds() -> bool:
            return is_held(commit, self._last(spark, commit.buffer, commit.sink))

        stored: int | None = None
        with named_refusals(commit, holds):
            if not holds():
                with session_conf(spark, {}):  # not during a write that is staged
                    self._prepare(frame)
                self._stage(frame, commit)
                stored = self._publish(spark, commit).added
            self._remember(spark, commit)
        return None if self._merge is not None else stored

    # The marker

    def _last(self, spark: SparkSession, buffer: str, sink: str) -> int | None:
        if not self._refresh(spark):
            return None
        properties = self._properties(spark)
        remembered = properties.get(property_of(buffer, sink))
        return held_high(self._snapshots(spark), _head(properties), buffer=buffer, sink=sink, remembered=remembered)

    def _refresh(self, spark: SparkSession) -> bool:
        """Refresh the table, and return whether it is there.

        Iceberg's catalogs keep tables in memory: what other drivers have committed since shows only after a refresh.
        """
        for key, value in self._catalog().items():
            if spark.conf.get(key, None) is None:  # a session that was not started for this sink
                spark.conf.set(key, value)
        if not spark.catalog.tableExists(".".join(self._parts)):
            return False
        spark.sql(f"REFRESH TABLE {self._target}")
        return True

    def _properties(self, spark: SparkSession) -> dict[str, str]:
        return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {self._target}").collect()}

    def _snapshots(self, spark: SparkSession) -> dict[int, Snapshot]:
        """Return all that have not expired yet, by their number."""
        columns = ["snapshot_id", "parent_id", "unix_millis(committed_at)"]
        columns += ["summary['wap.id']", "summary['published-wap-id']", "summary['tenure.commit']"]
        columns += ["coalesce(cast(summary['added-records'] AS bigint), 0)"]
        found = spark.table(f"{self._target}.snapshots").selectExpr(*columns).collect()
        return {row[0]: Snapshot(*row) for row in found}

    def _remember(self, spark: SparkSession, commit: Commit) -> None:
        """Repeat the sequence in the table's properties, for the time after our snapshots have expired."""
        key, last = property_of(commit.buffer, commit.sink), self._last(spark, commit.buffer, commit.sink)
        if last is not None and self._properties(spark).get(key) != str(last):
            self._set_property(spark, key, str(last))

    def _set_property(self, spark: SparkSession, key: str, value: str) -> None:
        spark.sql(f"ALTER TABLE {self._target} SET TBLPROPERTIES ('{_escape(key)}' = '{value}')")

    # The table

    @property
    def _target(self) -> str:
        """Return the table as SQL spells it."""
        return ".".join(map(quote_name, self._parts))

    def _prepare(self, frame: DataFrame) -> None:
        """Create the table, or let the rows' new columns join it; both are commits of their own, without rows."""
        spark = frame.sparkSession
        if not self._refresh(spark):
            self._create(frame)
        elif self._properties(spark).get(_STAGED) != "true":
            self._set_property(spark, _STAGED, "true")
        there = {column.lower() for column in spark.table(self._target).columns}
        new = [field for field in frame.schema.fields if field.name.lower() not in there]
        check_joining([field.name for field in new], evolve=self._evolve)
        if not new:
            return
        columns = ", ".join(f"{quote_name(field.name)} {field.dataType.simpleString()}" for field in new)
        spark.sql(f"ALTER TABLE {self._target} ADD COLUMNS ({columns})")

    def _create(self, frame: DataFrame) -> None:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F  # noqa: N812

        writer = frame.sparkSession.createDataFrame([], frame.schema).writeTo(self._target).using("iceberg")
        if self._partition_by:
            first, *others = (F.col(quote_name(column)) for column in self._partition_by)
            writer = writer.partitionedBy(first, *others)
        try:
            writer.tableProperty(_STAGED, "true").create()
        except AnalysisException as error:
            if condition_of(error) != "TABLE_OR_VIEW_ALREADY_EXISTS":  # another driver was faster
                raise

    # The rows

    def _stage(self, frame: DataFrame, commit: Commit) -> None:
        """Write the rows into a snapshot outside of the main branch."""
        spark = frame.sparkSession
        with session_conf(spark, {"spark.wap.id": wap_id_of(commit)}):
            if self._merge is None:
                self._append(frame)
            else:
                self._merge.into(self._target, frame)

    def _append(self, frame: DataFrame) -> None:
        frame.writeTo(self._target).append()

    def _publish(self, spark: SparkSession, commit: Commit) -> Snapshot:
        """Make the newest snapshot that was staged for the commit a part of the main branch, and return it.

        It is published by its number, not by its identity: ``publish_changes`` refuses an identity that was staged
        twice, and a dead driver may have staged it before.
        """
        self._refresh(spark)
        ours = [snapshot for snapshot in self._snapshots(spark).values() if snapshot.staged_as == wap_id_of(commit)]
        if not ours:
            raise Indeterminate(f"{commit} was staged, but the table does not show it: repeat it")
        staged = max(ours, key=lambda snapshot: snapshot.committed_ms)
        # A MERGE that only inserts is an append to Iceberg, which would publish it after another writer's rows.
        if self._merge is not None and staged.parent != _head(self._properties(spark)):
            raise Overloaded(f"another writer changed the table while {commit} was merged", code="table_busy")
        if self._merge is None and staged.added is not None:
            about_to_publish(staged.added)
        catalog, table = quote_name(self._parts[0]), ".".join(map(quote_name, self._parts[1:]))
        spark.sql(f"CALL {catalog}.system.cherrypick_snapshot('{table}', {staged.number})").collect()
        return staged


def _head(properties: Mapping[str, str]) -> int | None:
    """Return the snapshot that the main branch ends at; Iceberg shows it among the properties."""
    head = properties.get("current-snapshot-id", "none")
    return None if head == "none" else int(head)


def _escape(text: str) -> str:
    """Return text escaped for single quotes in SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
