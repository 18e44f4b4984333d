"""A Delta table as a sink, through Delta's own connector for Spark.

Each commit carries the range's last sequence as an application transaction (``txnAppId``, ``txnVersion``), and Delta
skips a version that it has seen. That is atomic with the rows, for an append as for a MERGE. A second writer of the
same range, such as a driver that was given up for dead, collides in Delta's log, and asks the marker again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Invalid
from tenure.spark.sinks.arguments import column_names, connector_of, quote_name
from tenure.spark.sinks.delta.marker import transaction_version
from tenure.spark.sinks.delta.stored import commit_rows
from tenure.spark.sinks.files.table import FileTable
from tenure.spark.sinks.merge import ORDER_BY, Merge, check_joining, merge_of
from tenure.spark.sinks.nested import new_fields
from tenure.spark.sinks.partition_values import with_directory_names
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.protocol import Needs, is_held
from tenure.spark.sinks.refusals import named_refusals, unlogged
from tenure.spark.sinks.session_conf import session_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DeltaSink"]

_PACKAGES = {
    (3, 5): "io.delta:delta-spark_2.12:3.3.3",
    (4, 0): "io.delta:delta-spark_4.0_2.13:4.4.0",
    (4, 1): "io.delta:delta-spark_4.1_2.13:4.4.0",
    (4, 2): "io.delta:delta-spark_4.2_2.13:4.4.0",
}
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_TABLE = re.compile(r"[\w-]+(?:\.[\w-]+){0,2}")
_TXN_APPLICATION = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"


class DeltaSink:
    """A sink for the Delta table at ``where``: a path, a URL (``s3://``, ``gs://``, ``file://``), or a table's name.

    Without ``merge_keys`` rows are appended. With them the newest row of each key, by ``order_by``, replaces what the
    table holds under that key, and is deleted where ``delete_when``, SQL over the columns of the rows, is true of it.
    ``evolve`` lets columns join the table. The table is created if absent. Raises Invalid for arguments that contradict
    each other.

    >>> from tenure.spark import DeltaSink
    >>> DeltaSink("s3://lake/orders", merge_keys=["order_id"]).name
    'delta'
    """

    def __init__(
        self,
        where: str | Path,
        *,
        name: str = "delta",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        merge_keys: Sequence[str] = (),
        delete_when: str | None = None,
        order_by: Sequence[str] = ORDER_BY,
        evolve: bool = True,
    ) -> None:
        self.name = name
        self.schema_version = schema_version
        self._partition_by = column_names(partition_by)
        self._merge = merge_of(merge_keys, delete_when=delete_when, order_by=order_by)
        self._evolve = evolve
        self._place = None if isinstance(where, str) and _TABLE.fullmatch(where) else Place(where)
        self._where = str(where) if self._place is None else unquote(self._place.spark_url)

    def __repr__(self) -> str:
        return f"DeltaSink({self._where!r}, name={self.name!r})"

    @property
    def merges(self) -> bool:
        """Return whether rows replace each other by key."""
        return self._merge is not None

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return Delta's connector, and Hadoop's S3 client where the table is on S3.

        Raises Invalid (``no_connector``) where Delta has none for that Spark.
        """
        package = connector_of(
            "Delta", _PACKAGES, spark_version, small='SmallDelta, kind = "small_delta" in a pipeline file'
        )
        storage = Needs() if self._place is None else FileTable(self._place.url).needs(spark_version)
        return Needs((package, *storage.packages), _CONF | storage.conf)

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the newest application transaction in the table's log. Raises Corrupt for a log with a hole."""
        return self._last(spark, buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Append or merge the rows in one commit of the table; return what that commit says of them.

        Raises Conflict (``sink_moved``), Invalid (``sink_rejected``) for rows that the table cannot take, Overloaded
        (``table_busy``) where another writer came between, Indeterminate where the outcome is unknown.
        """
        spark = frame.sparkSession
        if self._merge is not None:
            self._merge.check(frame.columns)

        def holds() -> bool:
            return is_held(commit, self._last(spark, commit.buffer, commit.sink))

        if holds():
            return None
        is_on_disk = self._place is not None and self._place.local is not None
        frame = with_directory_names(frame, self._partition_by, is_on_disk=is_on_disk)
        with named_refusals(commit, holds):
            if self._merge is None:
                self._append(frame, {"txnAppId": _application(commit), "txnVersion": str(commit.high)})
            else:
                self._merge_rows(frame, commit, self._merge)
        return self._stored(spark, commit)

    def _stored(self, spark: SparkSession, commit: Commit) -> int | None:
        """Return how many rows the commit added, or merged. It is there: an error here must not hide that."""
        with suppress(Exception):
            location = self._location(spark)
            if location is not None:
                found = commit_rows(spark, location, _application(commit), commit.high)
                return found.added if self._merge is None else found.merged
        return None

    def _last(self, spark: SparkSession, buffer: str, sink: str) -> int | None:
        location = self._location(spark)
        return None if location is None else transaction_version(spark, location, f"tenure/{buffer}/{sink}")

    def _location(self, spark: SparkSession) -> str | None:
        """Return where the table's files are; None for a table that is not there."""
        if self._place is not None:
            return self._where
        if not spark.catalog.tableExists(self._where):
            return None
        detail = spark.sql(f"DESCRIBE DETAIL {self._target}").collect()[0]
        if detail["format"] != "delta":
            raise Invalid(f"{self._where} is a table of the format {detail['format']}, not of Delta")
        if any(feature.startswith("catalog") for feature in detail["tableFeatures"] or ()):
            raise Invalid(f"the commits of {self._where} are managed by its catalog: its log does not show the newest")
        return str(detail["location"])

    @property
    def _target(self) -> str:
        """Return the table as SQL spells it."""
        if self._place is not None:
            return f"delta.{quote_name(self._where)}"
        return ".".join(quote_name(part) for part in self._where.split("."))

    def _append(self, frame: DataFrame, options: dict[str, str]) -> None:
        writer = frame.write.format("delta").mode("append").options(**options)
        writer = writer.option("mergeSchema", str(self._evolve).lower())
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        if self._place is not None:
            writer.save(self._where)
        else:
            writer.saveAsTable(self._where)

    def _merge_rows(self, frame: DataFrame, commit: Commit, merge: Merge) -> None:
        spark = frame.sparkSession
        with session_conf(spark, {}):  # not during a MERGE, whose identity would become that of the append in there
            self._prepare(frame)
        with session_conf(spark, {_TXN_APPLICATION: _application(commit), _TXN_VERSION: str(commit.high)}):
            merge.into(self._target, frame)

    def _prepare(self, frame: DataFrame) -> None:
        """Create the table, or let the rows' new columns join it, by an append of no rows, as Delta itself does it."""
        from pyspark.errors import AnalysisException
        from pyspark.sql.types import StructType

        spark = frame.sparkSession
        try:
            with unlogged():
                there = spark.sql(f"SELECT * FROM {self._target}").schema
        except AnalysisException:  # no table: where it is something else, the append fails
            there = StructType()
        new = new_fields(frame.schema, there)
        check_joining(new if there.fields else (), evolve=self._evolve)
        if new:
            self._append(spark.createDataFrame([], frame.schema), {})


def _application(commit: Commit) -> str:
    return f"tenure/{commit.buffer}/{commit.sink}"
