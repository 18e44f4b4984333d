"""The sink: the contract of a table that batches are ingested into, exactly once.

A sink writes batches and the sequence they end at, together or not at all. The next run asks the table how far it is,
so nothing is lost or stored twice. Every commit has an identity that is the same on replay, so that a lost answer can
be asked for again.

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
    """The outcome of a write, as far as the sink knows."""

    COMMITTED = "committed"
    """Data and sequence are durable."""
    NOT_COMMITTED = "not_committed"
    """Nothing happened: the same write may be repeated."""
    MAYBE_COMMITTED = "maybe_committed"
    """Unknown: ask `check_committed`, then repeat."""
    FATAL = "fatal"
    """Repeating cannot help: an operator has to look. Nothing is acknowledged."""


class Written(NamedTuple):
    """An outcome, and the reason where it is not `COMMITTED`."""

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
        """Return whether a table that holds everything up to ``last`` holds this commit."""
        return last is not None and last >= self.high

    def follows(self, last: int | None) -> bool:
        """Return whether a table that ends at ``last`` may take this commit next; an empty one takes any."""
        return last is None or last == self.low - 1


def unwritten(commit: Commit, last: int | None) -> Written | None:
    """Return the answer of a table that ends at ``last`` where it needs no write; None where it must write."""
    if commit.is_held_by(last):
        return Written(Outcome.COMMITTED)
    if commit.follows(last):
        return None
    return Written(Outcome.FATAL, f"the table holds batches up to {last}; {commit} does not follow")


def says_disk_full(text: str) -> bool:
    """Return whether an error's text, from any library, reports a full disk or a used-up quota."""
    return any(sign in text for sign in _DISK_FULL)


class Sink(Protocol[Rows]):
    """A table that batches go to. One ingest runtime uses it at a time, with one call under way.

    ``name`` distinguishes the sinks of one buffer and must stay the same for the life of the table. Raise
    ``schema_version`` when ``decode`` changes what it returns.
    """

    name: str
    schema_version: int

    async def last_committed(self, buffer: str) -> int | None:
        """Return the sequence of the last batch of the buffer that the table holds; None where it holds none."""
        ...

    async def write(self, commit: Commit, parts: Sequence[Rows]) -> Written:
        """Store the rows of these batches and ``commit.high``, atomically. It never raises for a failure of the table.

        A commit that the table holds already is `COMMITTED`, and nothing is stored again.
        """
        ...

    async def check_committed(self, commit: Commit) -> bool:
        """Return whether the table holds this commit. Raises OSError where it cannot be asked now."""
        ...

    async def close(self) -> None:
        """Release the table."""
        ...
