"""The protocol of a sink for Spark jobs: write a range's rows and the sequence it ends at, together or not at all.

Every sink checks the marker, writes to a fresh path, then commits data and marker together. `tenure.buffer.ingest.sink`
has the same contract for an ingest without Spark, and says where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from tenure.buffer.ingest.sink import Commit
from tenure.errors import Conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Needs", "SparkSink", "about_to_publish", "audited", "is_held", "merges"]

Audit = Callable[[int], None]
"""Called with the rows of a commit right before it; what it raises leaves them out of the table."""

_audit: ContextVar[Audit | None] = ContextVar("tenure_audit", default=None)


class Needs:
    """The requirements of a sink on a session: Maven coordinates and configuration.

    >>> from tenure.spark import FileTable
    >>> FileTable("/lake/orders").needs((4, 0)).packages
    ()
    """

    def __init__(self, packages: tuple[str, ...] = (), conf: dict[str, str] | None = None) -> None:
        self.packages = packages
        self.conf = conf or {}


class SparkSink(Protocol):
    """A table that ranges go to: `tenure.buffer.Sink` for a Spark job, which blocks, and raises instead of returning.

    ``name`` distinguishes the sinks of one buffer and must stay the same for the life of the table. Raise
    ``schema_version`` when what is written changes its meaning.
    """

    name: str
    schema_version: int

    def needs(self, spark_version: tuple[int, int]) -> Needs:
        """Return what a session of this Spark must have. Pure: it is called before there is a session.

        Raises Invalid where no connector for that Spark exists, with the versions that have one.
        """
        ...

    def last_committed(self, spark: SparkSession, buffer: str) -> int | None:
        """Return the last sequence of the buffer that the table holds; None where it holds none, or is absent."""
        ...

    def write(self, frame: DataFrame, commit: Commit) -> int | None:
        """Store the frame's rows and ``commit.high``, atomically; a commit that the table holds stores nothing.

        Return the rows that this commit added, counted in the table and not in the frame: what is not the frame's count
        was lost on the way. A MERGE returns the rows that it applied, the newest of each key. None where it cannot be
        told, or the table held the commit before.

        It asks for the marker itself, first. Raises Conflict (``sink_moved``) where the range does not follow what the
        table holds, Invalid for rows that the table cannot take, Overloaded where it refuses for now, Indeterminate
        where the outcome is unknown: ask ``last_committed``, then repeat the same commit.
        """
        ...


def is_held(commit: Commit, last: int | None) -> bool:
    """Return whether a table that holds everything up to ``last`` holds the commit.

    Raises Conflict where it neither holds it nor ends right before it.
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


@contextmanager
def audited(audit: Audit) -> Iterator[None]:
    """Have the writes of this block ask ``audit`` before they commit, as far as their sinks count before it.

    It is not a parameter of ``write``, so that a sink which knows its rows only afterwards need not have it.
    """
    token = _audit.set(audit)
    try:
        yield
    finally:
        _audit.reset(token)


def about_to_publish(rows: int) -> None:
    """Let the caller of ``write`` refuse a commit of so many rows. Call it once they are counted, before the commit."""
    audit = _audit.get()
    if audit is not None:
        audit(rows)


def merges(sink: SparkSink) -> bool:
    """Return whether the sink's rows replace each other by key: it may then store fewer rows than it is given."""
    return bool(getattr(sink, "merges", False))
