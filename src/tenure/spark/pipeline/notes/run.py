"""The note of a pipeline's run: its figures, its state, and what it waits for."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from tenure.spark.pipeline.rows.figures import Figures

__all__ = ["Run", "Trouble"]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A wait of a run: the table or the store refuses for now, and the call is repeated."""

    code: str
    message: str
    since_ms: int
    attempts: int


class Run(msgspec.Struct, kw_only=True):
    """A run, with its progress so far."""

    pipeline: str
    schedule: str
    id: str = msgspec.field(default_factory=lambda: secrets.token_hex(4))
    """The part of its key that differs from runs which started in the same millisecond."""
    state: str = "running"
    """running, done, stopped or failed."""
    source: str = ""
    into: str = ""
    aside: str | None = None
    """Where rows go that are set aside."""
    started_ms: int = 0
    updated_ms: int = 0
    ranges: int = 0
    batches: int = 0
    bytes: int | None = 0
    """Stored bytes of the batches; None for a topic, which does not report them, and for an unreadable manifest."""
    passed_over: int = 0
    """Batches that the table of a backfill held already."""
    low: int | None = None
    high: int | None = None
    reached: int | None = None
    """The last batch or seq that was written, by this run or by one before it."""
    lag: int | None = None
    """Batches, or records of a topic, that were still to come after the last range; None where that is not known."""
    lag_ms: int | None = None
    """The age of the first of them by then, 0 in a backfill; None where that is not known."""
    idle_before: int = 0
    """Runs right before this one that found nothing to write, and whose notes it replaces."""
    figures: Figures = msgspec.field(default_factory=Figures)
    error: dict[str, Any] | None = None
    waiting: Trouble | None = None
    """None while all is well."""
    retries: int = 0
    """Calls that were repeated so far."""

    @property
    def is_idle(self) -> bool:
        """Return whether the run ended well with nothing to write."""
        return self.state == "done" and self.high is None and not self.passed_over

    @property
    def seconds(self) -> float:
        return max(0, self.updated_ms - self.started_ms) / 1000

    @property
    def entries_per_s(self) -> float | None:
        entries = self.figures.entries
        if entries is None:
            return None
        return entries / self.seconds if self.seconds else 0.0
