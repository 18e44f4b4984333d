"""The last runs of a pipeline, noted in the buffer's store. For people: nothing depends on it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from tenure.buffer.loop import background
from tenure.buffer.store import ObjectMissing, open_store
from tenure.errors import TenureError
from tenure.spark.pipeline.outputs import Figures

__all__ = ["RUNS_KEPT_MAX", "Run", "Trouble", "last_run", "note_run", "runs_of"]

RUNS_KEPT_MAX: Final = 100
"""Runs that are remembered, those that found nothing to write not counted."""
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
    bytes: int = 0
    """Stored bytes of the batches; 0 for a topic, which does not say."""
    passed_over: int = 0
    """Batches that the table of a backfill held already."""
    low: int | None = None
    high: int | None = None
    reached: int | None = None
    """The last batch or seq that was written, by this run or by one before it."""
    lag: int = 0
    """Batches, or records of a topic, that were still to come after the last range."""
    lag_ms: int = 0
    """The age of the first of them by then; 0 for a topic."""
    idle_before: int = 0
    """Runs right before this one that found nothing to write, and are not remembered for it."""
    figures: Figures = msgspec.field(default_factory=Figures)
    error: dict[str, Any] | None = None
    waiting: Trouble | None = None
    """None while all is well."""
    retries: int = 0
    """Calls that were repeated so far."""

    @property
    def is_idle(self) -> bool:
        """Whether the run ended well with nothing to write."""
        return self.state == "done" and self.high is None and not self.passed_over

    @property
    def seconds(self) -> float:
        return max(0, self.updated_ms - self.started_ms) / 1000

    @property
    def entries_per_s(self) -> float:
        return self.figures.entries / self.seconds if self.seconds else 0.0


class _Notes(msgspec.Struct):
    """The document of a pipeline: its runs, newest first."""

    runs: list[Run]


def note_run(url: str, run: Run) -> None:
    """Write a run down beside those before it; a store that refuses stops nothing.

    A run that found nothing to write gives its place to the next one: a pipeline that looks every minute keeps the
    runs that did something.
    """
    with suppress(TenureError, OSError):
        others = [each for each in runs_of(url, run.pipeline) if each.started_ms != run.started_ms]
        if others and others[0].is_idle:
            run.idle_before = others.pop(0).idle_before + 1
        background().run(open_store(url).put(_key(run.pipeline), _encoded([run, *others])))


def last_run(url: str, pipeline: str) -> Run | None:
    """The last run that was noted; None where there was none, or its note cannot be read."""
    return next(iter(runs_of(url, pipeline)), None)


def runs_of(url: str, pipeline: str) -> list[Run]:
    """The runs that were noted, newest first; none where they cannot be read. Raises what the store raises."""
    try:
        found = background().run(open_store(url).get(_key(pipeline), limit_bytes=_RECORD_BYTES_MAX))
    except ObjectMissing:
        return []
    try:
        return msgspec.json.decode(found, type=_Notes).runs
    except msgspec.DecodeError:
        return []


def _encoded(runs: list[Run]) -> bytes:
    """The document with as many of the newest runs as it may hold."""
    kept = RUNS_KEPT_MAX
    while len(document := msgspec.json.encode(_Notes(runs[:kept]))) > _RECORD_BYTES_MAX and kept > 1:
        kept //= 2
    return document


def _key(pipeline: str) -> str:
    return f"pipeline/{pipeline}.json"
