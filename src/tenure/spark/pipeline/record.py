"""The last run of a pipeline, noted in the buffer's store. For people: nothing depends on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from tenure.buffer.loop import background
from tenure.buffer.store import ObjectMissing, open_store
from tenure.errors import TenureError
from tenure.spark.pipeline.outputs import Figures

__all__ = ["Run", "Trouble", "last_run", "note_run"]

_RECORD_BYTES_MAX: Final = 1 << 20


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for: the table or the store refuses for now, and is asked again."""

    code: str
    message: str
    since_ms: int
    attempts: int


class Run(msgspec.Struct, kw_only=True):
    """A run, as far as it has come."""

    pipeline: str
    schedule: str
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
    passed_over: int = 0
    """Batches that the table of a backfill held already."""
    low: int | None = None
    high: int | None = None
    reached: int | None = None
    """The last batch or seq that was written, by this run or by one before it."""
    figures: Figures = msgspec.field(default_factory=Figures)
    error: dict[str, Any] | None = None
    waiting: Trouble | None = None
    """None while all is well."""
    retries: int = 0
    """Calls that were repeated so far."""

    @property
    def seconds(self) -> float:
        return max(0, self.updated_ms - self.started_ms) / 1000

    @property
    def entries_per_s(self) -> float:
        return self.figures.entries / self.seconds if self.seconds else 0.0


def note_run(url: str, run: Run) -> None:
    """Write it down; a store that refuses stops nothing."""
    with suppress(TenureError, OSError):
        background().run(open_store(url).put(_key(run.pipeline), msgspec.json.encode(run)))


def last_run(url: str, pipeline: str) -> Run | None:
    """The last run that was noted; None where there was none, or its note cannot be read."""
    try:
        found = background().run(open_store(url).get(_key(pipeline), limit_bytes=_RECORD_BYTES_MAX))
    except ObjectMissing:
        return None
    try:
        return msgspec.json.decode(found, type=Run)
    except msgspec.DecodeError:
        return None


def _key(pipeline: str) -> str:
    return f"pipeline/{pipeline}.json"
