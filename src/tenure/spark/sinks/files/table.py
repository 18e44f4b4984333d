"""The file table: Parquet files in a directory that take every range once, readable by any Spark without a connector.

Its commit log is that of Spark's own streaming file sink, so ``spark.read.parquet(directory)`` reads exactly what was
committed, each row once; other readers ask `files`. The log's layout is in ``log``, the removal of abandoned attempts
in ``stage``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Corrupt, Invalid, Overloaded, TenureError
from tenure.objects.background import background
from tenure.spark.jobs.causes import named_causes
from tenure.spark.sinks.arguments import column_names
from tenure.spark.sinks.files.footer import read_footer
from tenure.spark.sinks.files.lines import Line, Mark
from tenure.spark.sinks.files.log import ATTEMPTS_MAX, FileLog, LogState
from tenure.spark.sinks.files.schema import TableSchema, join, schema_of, schema_of_file
from tenure.spark.sinks.files.stage import Stage
from tenure.spark.sinks.given import count_given
from tenure.spark.sinks.partition_values import with_directory_names
from tenure.spark.sinks.places import Place
from tenure.spark.sinks.protocol import Needs, about_to_publish, is_held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["FileTable", "files", "make_nullable"]


def make_nullable(frame: DataFrame) -> DataFrame:
    """Return the same rows with every column declared nullable."""
    from pyspark.sql import functions as f

    if all(field.nullable and _open(field.dataType) == field.dataType for field in frame.schema.fields):
        return frame
    columns = []
    for field in frame.schema.fields:
        column = f.col("`" + field.name.replace("`", "``") + "`")
        if not field.nullable or _open(field.dataType) != field.dataType:
            # Always true, but not a constant that the optimizer may see through.
            column = f.when(f.spark_partition_id() >= 0, column.cast(_open(field.dataType))).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _open(kind: DataType) -> DataType:
    """Return the type with everything inside of it nullable."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(field.name, _open(field.dataType), True) for field in kind.fields])
        case ArrayType():
            return ArrayType(_open(kind.elementType), True)
        case MapType():
            return MapType(kind.keyType, _open(kind.valueType), True)
        case _:
            return kind


_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4_raw", "brotli", "none")
_NO_ATTEMPT = "none"
_HADOOP = {(3, 5): "3.3.4", (4, 0): "3.4.1", (4, 1): "3.4.2", (4, 2): "3.5.0", (4, 3): "3.5.0"}


class FileTable:
    """A sink that writes Parquet files below ``where``: a path, ``file://``, ``s3://`` (or ``s3a://``) or ``gs://``.

    ``partition_by`` names columns that become directories (``day=2026-11-15``); ``rows_per_file_max`` splits what one
    task writes; ``compression`` is one of Parquet's. Columns may join later: read with ``mergeSchema``. Raises Invalid
    for a malformed place.

    >>> from tenure.spark import FileTable
    >>> FileTable("s3://lake/orders", partition_by=["day"]).name
    'files'
    """

    def __init__(
        self,
        where: str | Path,
        *,
        name: str = "files",
        schema_version: int = 1,
        partition_by: Sequence[str] = (),
        rows_per_file_max: int | None = None,
        compression: str = "zstd",
    ) -> None:
        if rows_per_file_max is not None and rows_per_file_max < 1:
            raise Invalid("rows_per_file_max is a number from 1 on")
        self.name = name
        self.schema_version = schema_version
        self._place = Place(where)
        self._partition_by = column_names(partition_by)
        if hidden := [column for column in self._partition_by if column.startswith(".")]:
            raise Invalid(f"partitioned by {', '.join(hidden)}, the files would be hidden from Spark: rename it")
        self._rows_per_file_max = rows_per_file_max
        if compression not in _COMPRESSIONS:
            raise Invalid(f"compression is one of {', '.join(_COMPRESSIONS)}, not {compression!r}")
        self._compression = compression

    def __repr__(self) -> str:
        return f"FileTable({self._place.url!r}, name={self.name!r})"

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return nothing on a file system; Hadoop's S3 client for S3. Raises Invalid for a Spark that is not known."""
        if not self._place.spark_url.startswith("s3a:"):
            return Needs()
        if spark_version not in _HADOOP:
            known = ", ".join(f"{major}.{minor}" for major, minor in _HADOOP)
            raise Invalid(f"no S3 client is known for Spark {spark_version[0]}.{spark_version[1]}, only for {known}")
        return Needs((f"org.apache.hadoop:hadoop-aws:{_HADOOP[spark_version]}",), self._place.hadoop())

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the log's last mark of the buffer.

        Raises Corrupt for a damaged log, Indeterminate where the store cannot be asked now.
        """
        return background().run(self._log().read()).last_committed(buffer, self.name)

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Write the rows beside the table, then name their files in its log; return the rows in those files.

        Raises Conflict (``sink_moved``), Invalid for columns that Parquet cannot hold or that are not there,
        Overloaded (``disk_full``, ``table_unavailable``, ``table_busy``) where the table refuses for now, Denied
        (``table_denied``), Indeterminate where the store's answer to the commit was lost.
        """
        self._check(frame)
        log = self._log()
        state = background().run(log.read())
        if is_held(commit, state.last_committed(commit.buffer, commit.sink)):
            return None
        schema = background().run(self._join(log, state, schema_of(frame.schema.jsonValue(), self._partition_by)))
        stage = Stage(self._place, log.retrying, commit)
        try:
            with named_causes(_not_there(commit)):
                given = self._stage(frame, stage)
                lines = background().run(stage.publish())
                stored = background().run(stage.count_rows(lines))
                _check_rows(commit, given(), stored)
                about_to_publish(stored)
        except Exception:
            # A successor that has committed the range removes what this driver is writing.
            if is_held(commit, background().run(log.read()).last_committed(commit.buffer, commit.sink)):
                return None
            with contextlib.suppress(TenureError):  # a full disk may have no room for this either
                background().run(stage.discard())
            raise
        state = background().run(self._commit(log, commit, stage.attempt, lines, schema))
        with contextlib.suppress(TenureError):  # the rows are there; the next write removes what is left now
            background().run(stage.clean(state))
        return stored if state.marks[commit.buffer, commit.sink].attempt == stage.attempt else None

    def skip(self, commit: Commit) -> None:
        """Commit a range that has no rows for this table, without a job of Spark's. Raises as ``write`` does."""
        background().run(self._commit(self._log(), commit, _NO_ATTEMPT, []))

    def _log(self) -> FileLog:
        return FileLog(self._place.store(), self._place.spark_url)

    def _check(self, frame: DataFrame) -> None:
        if missing := set(self._partition_by) - set(frame.columns):
            raise Invalid(f"the table is partitioned by {sorted(missing)}, which the rows do not have")
        if set(frame.columns) == set(self._partition_by):
            raise Invalid("the rows have no column beside those of the partitions")

    async def _join(self, log: FileLog, state: LogState, rows: TableSchema) -> TableSchema:
        """Return the table's schema with these rows in it. Raises Invalid (``sink_rejected``) where they do not fit.

        The log of an older version has no schema: then the newest file shows it.
        """
        known = state.schema
        if known is None and state.files:
            newest = state.files[-1]
            key = self._place.key_of(newest.path)
            footer = await read_footer(log.retrying, key, newest.size)
            known = schema_of_file(key, footer.metadata)
        return rows if known is None else join(known, rows)

    def _stage(self, frame: DataFrame, stage: Stage) -> Callable[[], int | None]:
        """Write the files of the attempt; return a function that tells how many rows they were given."""
        from pyspark.errors import AnalysisException

        try:
            # With the second algorithm a task that dies while it commits leaves a part of its files.
            rows = make_nullable(frame)
            rows = with_directory_names(rows, self._partition_by, is_on_disk=self._place.local is not None)
            rows, given = count_given(rows)
            writer = rows.write.option("mapreduce.fileoutputcommitter.algorithm.version", "1")
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            if self._rows_per_file_max is not None:
                writer = writer.option("maxRecordsPerFile", str(self._rows_per_file_max))
            writer.option("compression", self._compression).mode("error").parquet(stage.spark_path)
        except AnalysisException as error:
            raise Invalid(f"the table cannot take the rows: {error}", code="sink_rejected") from error
        return given

    async def _commit(
        self, log: FileLog, commit: Commit, attempt: str, lines: list[Line], schema: TableSchema | None = None
    ) -> LogState:
        """Name the files in the log, after a state that the range follows; return the state that holds it.

        Raises Invalid where another writer has changed the schema meanwhile, so that these files do not fit.
        """
        mark = Mark.of(commit, attempt)
        for turn in range(ATTEMPTS_MAX):
            state = await log.read()
            if is_held(commit, state.last_committed(commit.buffer, commit.sink)):
                return state
            if schema is not None and state.schema is not None:
                schema = join(state.schema, schema)
            with named_causes(_not_there(commit)):
                is_mine = await log.append(state, mark, lines, schema=schema)
            if is_mine:
                state.add([*lines])
                state.marks[commit.buffer, commit.sink] = mark
                return state
            await log.retrying.pause(turn, 250)
        raise Overloaded("others commit to the table all the time", code="table_busy")


def _check_rows(commit: Commit, given: int | None, stored: int) -> None:
    """Raise Corrupt (``table_rows_differ``) where the files do not hold the rows that were written."""
    if given is not None and given != stored:
        raise Corrupt(
            f"{given:,} rows of {commit} were written, and the files that were published for them hold {stored:,}: "
            "nothing was committed. Run it again; if it stays so, report it with the table's partition_by",
            code="table_rows_differ",
        )


def _not_there(commit: Commit) -> str:
    return f"the range {commit.low} to {commit.high} is not in the table"


def files(where: str | Path) -> list[str]:
    """Return the committed files of a table, for readers that do not follow its log: paths, or URLs elsewhere.

    Raises Corrupt for a damaged log, Invalid where the table is not where it was written.
    """
    place = Place(where)
    state = background().run(FileLog(place.store(), place.spark_url).read())
    keys = [place.key_of(line.path) for line in state.files]
    base = str(place.local) if place.local is not None else place.url.partition("?")[0].rstrip("/")
    return [f"{base}/{key}" for key in keys]
