"""What the ingest runtime asks of a table: write batches and the sequence they end at, together or not at all.

A sink that stores both atomically gives exactly once: whoever starts next asks it how far it is. Every commit has an
identity that is the same on replay, so that an answer that was lost can be asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

__all__ = ["Commit", "Outcome", "Sink", "Written", "says_disk_full"]

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
