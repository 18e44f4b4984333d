"""The rows of one commit of a Delta table, by its own log: what its files hold, and what a MERGE was given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tenure.spark.sinks.delta.marker import log_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CommitRows", "commit_rows"]

_COMMIT: Final = re.compile(r"\d{20}\.json")
_LOOKED_AT_MAX: Final = 8
"""Commits that are read from the newest back: other writers may have committed since."""
_ACTIONS: Final = (
    "txn struct<appId: string, version: bigint>, add struct<stats: string>, "
    "commitInfo struct<operationMetrics: map<string, string>>"
)


class CommitRows(NamedTuple):
    """The rows that the files of a commit have, and those that a MERGE took; None where the log does not say."""

    added: int | None = None
    merged: int | None = None


def commit_rows(spark: SparkSession, location: str, application: str, version: int) -> CommitRows:
    """Return the rows of the commit with this application transaction, one of the table's newest."""
    from pyspark.sql import functions as F  # noqa: N812

    log = f"{location.rstrip('/')}/_delta_log"
    names = sorted((name for name in log_names(spark, log) if _COMMIT.fullmatch(name)), reverse=True)
    for name in names[:_LOOKED_AT_MAX]:
        rows = F.get_json_object("add.stats", "$.numRecords").cast("bigint")
        ours = (F.col("txn.appId") == application) & (F.col("txn.version") == version)
        found = (
            spark.read.schema(_ACTIONS)
            .json(f"{log}/{name}")
            .agg(
                F.max(F.coalesce(ours, F.lit(False))),
                F.coalesce(F.sum(rows), F.lit(0)),
                F.count("add") - F.count(rows),
                F.max(F.col("commitInfo.operationMetrics")["numSourceRows"].cast("bigint")),
            )
            .collect()[0]
        )
        if found[0]:
            return CommitRows(None if found[2] else found[1], found[3])
    return CommitRows()
