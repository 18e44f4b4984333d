"""The marker of a Delta table: the newest application transaction in its log, read by Spark itself.

Spark has no function for it. The history (``DESCRIBE HISTORY``, ``userMetadata``) goes away with the commits, 30 days
later by default, and a table property would be a commit of its own, after the data. The transactions in the log are
what Delta itself decides by: they are carried from checkpoint to checkpoint, so neither the clean-up of the log nor
VACUUM removes them. Reading the log by Spark's own readers needs nothing that Spark Connect or Spark 3.5 lacks, and
reaches any storage that the table is on.

Only two things are read: one column of the newest complete checkpoint, and the commits after it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from tenure.errors import Corrupt
from tenure.spark.sinks.refusals import condition_of, unlogged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LogFiles", "log_files", "log_names", "transaction_version"]

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_TRANSACTIONS = "txn struct<appId: string, version: bigint>"


class LogFiles(NamedTuple):
    """The files of a log that hold its newest transactions, by name."""

    parquet: tuple[str, ...]
    json: tuple[str, ...]


def transaction_version(spark: SparkSession, location: str, application: str) -> int | None:
    """Return the version of the application's newest transaction; None where it has none or there is no table.

    Raises Corrupt where the log has a hole.
    """
    from pyspark.sql import functions as F  # noqa: N812

    log = f"{location.rstrip('/')}/_delta_log"
    files = log_files(log_names(spark, log))
    frames: list[DataFrame] = []
    reader = spark.read.schema(_TRANSACTIONS)
    if files.parquet:
        frames.append(reader.parquet(*[f"{log}/{name}" for name in files.parquet]))
    if files.json:
        frames.append(reader.option("mode", "FAILFAST").json([f"{log}/{name}" for name in files.json]))
    if not frames:
        return None
    found = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    # Delta takes only a version that is greater than the last one, so the greatest is the newest.
    newest = found.where(F.col("txn.appId") == application).agg(F.max("txn.version").alias("version")).collect()
    version = newest[0]["version"]
    return None if version is None else int(version)


def log_files(names: Iterable[str]) -> LogFiles:
    """Return which of a log's files to read: the newest complete checkpoint and every commit after it.

    Raises Corrupt where a commit in between is missing.
    """
    commits: list[int] = []
    checkpoints: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        if found := _COMMIT.fullmatch(name):
            commits.append(int(found[1]))
        elif found := _CHECKPOINT.fullmatch(name):
            checkpoints[int(found[1])][int(found[2] or 1)].append(name)
    newest, parts = -1, list[str]()
    for version, kinds in checkpoints.items():
        whole = [files for count, files in kinds.items() if len(files) >= count]
        if whole and version > newest:
            newest, parts = version, whole[0]
    behind = sorted(commit for commit in commits if commit > newest)
    for version, commit in enumerate(behind, newest + 1):
        if commit != version:
            raise Corrupt(f"the table's log has no commit {version}, but a later one: restore it, then go on")
    json = [name for name in parts if name.endswith(".json")] + [f"{commit:020}.json" for commit in behind]
    return LogFiles(tuple(name for name in parts if name.endswith(".parquet")), tuple(json))


def log_names(spark: SparkSession, log: str) -> list[str]:
    """Return the names in the log's directory, listed by the driver alone; none where it is not there."""
    from pyspark.errors import AnalysisException

    try:
        with unlogged():
            listing = spark.read.format("text").load(log)
        return [unquote(url.rpartition("/")[2]) for url in listing.inputFiles()]
    except AnalysisException as error:
        if condition_of(error) == "PATH_NOT_FOUND":
            return []
        raise
