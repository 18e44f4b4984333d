"""How far an Iceberg table is: the newest of our snapshots that its main branch is built on.

A snapshot carries the commit's identity as its ``wap.id``, or as ``published-wap-id`` where it was published behind
another writer's. Only ancestors of the main branch count: a staged snapshot that nobody published holds nothing.
Snapshots expire, so a table property repeats the sequence. It is written behind the snapshot, so it is never ahead of
the truth, and the greater of the two is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.buffer.sinks import Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["high_of", "property_of", "published_high", "wap_id_of"]


def wap_id_of(commit: Commit) -> str:
    """The identity of a commit, as its snapshot carries it."""
    return f"tenure/{commit}"


def property_of(buffer: str, sink: str) -> str:
    """The table property that repeats the sequence."""
    return f"tenure.{buffer}.{sink}"


def high_of(wap_id: str, buffer: str, sink: str) -> int | None:
    """The last sequence of one of our identities; None for anybody else's."""
    prefix = f"tenure/{buffer}/{sink}/"
    if not wap_id.startswith(prefix):
        return None
    high = wap_id.removeprefix(prefix).partition("/")[0].partition("-")[2]
    return int(high) if high.isascii() and high.isdigit() else None


def published_high(spark: SparkSession, target: str, *, buffer: str, sink: str) -> int | None:
    """What the snapshots behind the main branch say; ``target`` is the table as SQL spells it."""
    from pyspark.sql import functions as F  # noqa: N812

    ids = F.array("summary.`wap.id`", "summary.`published-wap-id`")
    ours = (
        spark.table(f"{target}.history")
        .where("is_current_ancestor")
        .join(spark.table(f"{target}.snapshots"), "snapshot_id")
        .select(F.explode(ids).alias("id"))
        .where(F.col("id").startswith(f"tenure/{buffer}/{sink}/"))
    )
    # As many rows as snapshots have not expired yet, and of them those of this sink.
    highs = (high_of(row["id"], buffer, sink) for row in ours.collect())
    return max((high for high in highs if high is not None), default=None)
