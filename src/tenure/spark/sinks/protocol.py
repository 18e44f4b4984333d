"""What a Spark job asks of a table: write a range's rows and the sequence it ends at, together or not at all.

One protocol for all of them: check the marker, write to a fresh path, commit data and marker together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Needs", "SparkSink", "is_held"]


class Needs:
    """What a session must be started with for a sink to work: Maven coordinates and configuration.

    >>> from tenure.spark import FileTable
    >>> FileTable("/lake/orders").needs((4, 0)).packages
    ()
    """

    def __init__(self, packages: tuple[str, ...] = (), conf: dict[str, str] | None = None) -> None:
        self.packages = packages
        self.conf = conf or {}


class SparkSink(Protocol):
    """A table that ranges go to: `tenure.buffer.Sink` for a Spark job, which blocks, and raises instead of returning
    an outcome.

    ``name`` tells the sinks of one buffer apart and must stay the same for the life of the table; ``schema_version``
    is raised when what is written changes its meaning.
    """

    name: str
    schema_version: int

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """What a session of this Spark must have. Pure: it is asked before there is a session. Raises Invalid where
        no connector for that Spark exists, and says which versions have one.
        """
        ...

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """The last sequence of the buffer that the table holds; None where it holds none, or is not there yet."""
        ...

    def write(self, frame: DataFrame, commit: Commit) -> None:
        """Store the frame's rows and ``commit.high``, atomically; a commit that the table holds stores nothing.

        It asks for the marker itself, first. Raises Conflict (``sink_moved``) where the range does not follow what the
        table holds, Invalid for rows that the table cannot take, Overloaded where it refuses for now, Indeterminate
        where the outcome is unknown: ask ``last_committed``, then repeat the same commit.
        """
        ...


def is_held(commit: Commit, last: int | None) -> bool:
    """Whether a table that holds everything up to ``last`` holds the commit. Raises Conflict where it neither holds it
    nor ends right before it.
    """
    if commit.is_held_by(last):
        return True
    if not commit.follows(last):
        raise Conflict(
            f"the table holds batches up to {last}, and {commit} does not follow: another job writes to it, or it was "
            "set back. One group has one table; give another table another name",
            code="sink_moved",
            last=last,
        )
    return False
