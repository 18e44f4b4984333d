"""What the ingest runtime asks of a table: write batches and the sequence they end at, together or not at all.

A sink that stores both atomically gives exactly once: whoever starts next asks it how far it is. Every commit has an
identity that is the same on replay, so that an answer that was lost can be asked for again.

`tenure.spark.SparkSink` is the same contract for a Spark job: the same `Commit`, the same rule of what a table holds
and what follows (`Commit.is_held_by`, `Commit.follows`). It differs in two points. It blocks, since a driver waits for
its jobs anyway; and it raises where `Sink.write` returns an `Outcome`, since a driver that fails is started again from
the table's own sequence, while an ingest in process repeats the write itself and must know whether it may.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

__all__ = ["Commit", "Outcome", "Sink", "Written", "says_disk_full", "unwritten"]

_DISK_FULL = (
    "No space left on device",
    "Disk quota exceeded",
    "not enough space on the disk",
    "QuotaExceededException",
)

Rows = TypeVar("Rows", contravariant=True)


class Outcome(Enum):
    """What became of a write, as far as the sink can tell."""

    COMMITTED = "committed"
    """Data and sequence are durable."""
    NOT_COMMITTED = "not_committed"
    """Nothing happened: the same write may be repeated."""
    MAYBE_COMMITTED = "maybe_committed"
    """Unknown: ask `check_committed`, then repeat."""
    FATAL = "fatal"
    """Repeating cannot help: somebody has to look. Nothing is acknowledged."""


class Written(NamedTuple):
    """An outcome, and why where it is not `COMMITTED`."""

    outcome: Outcome
    why: str = ""


class Commit(msgspec.Struct, frozen=True):
    """The identity of one write: these batches of this buffer into this sink, decoded by this version."""

    buffer: str
    sink: str
    low: int
    high: int
    schema_version: int

    def __str__(self) -> str:
        return f"{self.buffer}/{self.sink}/{self.low}-{self.high}/{self.schema_version}"

    def is_held_by(self, last: int | None) -> bool:
        """Whether a table that holds everything up to ``last`` holds this commit."""
        return last is not None and last >= self.high

    def follows(self, last: int | None) -> bool:
        """Whether a table that holds everything up to ``last`` may take this commit next; an empty one takes any."""
        return last is None or last == self.low - 1


def unwritten(commit: Commit, last: int | None) -> Written | None:
    """Return what a table that ends at ``last`` answers without writing; None where it is to write."""
    if commit.is_held_by(last):
        return Written(Outcome.COMMITTED)
    if commit.follows(last):
        return None
    return Written(Outcome.FATAL, f"the table holds batches up to {last}; {commit} does not follow")


def says_disk_full(text: str) -> bool:
    """Whether an error's text, of whatever library, is about a disk or a quota that is used up."""
    return any(sign in text for sign in _DISK_FULL)


class Sink(Protocol[Rows]):
    """A table that batches go to. One ingest runtime uses it at a time, and only one of its calls is under way.

    ``name`` tells sinks of one buffer apart and must stay the same for the life of the table; ``schema_version`` is
    raised when ``decode`` changes what it gives.
    """

    name: str
    schema_version: int

    async def last_committed(self, buffer: str) -> int | None:
        """The sequence of the last batch of the buffer that the table holds; None where it holds none."""
        ...

    async def write(self, commit: Commit, parts: Sequence[Rows]) -> Written:
        """Store the rows of these batches and ``commit.high``, atomically. It never raises for what a table may do.

        A commit that the table holds already is `COMMITTED`, and nothing is stored again.
        """
        ...

    async def check_committed(self, commit: Commit) -> bool:
        """Whether the table holds this commit. Raises OSError where it cannot be asked now."""
        ...

    async def close(self) -> None:
        """Let go of the table."""
        ...
