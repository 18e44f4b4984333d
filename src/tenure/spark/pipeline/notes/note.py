"""Noting a run: count what it has written, what it waits for, and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tenure.clock import SystemClock
from tenure.errors import TenureError
from tenure.spark.jobs.causes import job_error
from tenure.spark.jobs.range_writer import Done
from tenure.spark.jobs.retrying import Waiting
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.notes.history import begin_run, note_run
from tenure.spark.pipeline.notes.run import Run, Trouble

__all__ = ["OnRun", "RunNote", "keep_note"]

OnRun = Callable[[Run], None]
"""Called with a run after every range and whenever it waits."""

_NOTE_EVERY_MS: Final = 5_000


class RunNote:
    """The note of one run under way: counts ranges, reports them and its waits, and is written now and then."""

    def __init__(self, pipeline: Pipeline, run: Run, *, on_run: OnRun) -> None:
        self._clock = SystemClock()
        self._url, self._on_run = pipeline.notes_url, on_run
        self.run = run
        run.started_ms = run.updated_ms = self._noted_ms = self._clock.wall_ms()
        begin_run(self._url, run)

    def count(self, done: Done) -> None:
        """Count a range that is in the table."""
        run, summary = self.run, done.summary
        run.ranges, run.batches, run.low, run.high = summary.ranges, summary.batches, summary.low, summary.high
        run.reached = summary.high
        run.bytes = summary.bytes if done.is_measured and run.bytes is not None else None
        run.lag, run.lag_ms = (None, None) if done.lag is None else (done.lag.batches, done.lag.ms)
        run.updated_ms = self._clock.wall_ms()
        self._on_run(run)
        if run.updated_ms - self._noted_ms >= _NOTE_EVERY_MS:
            self._note()

    def wait(self, waiting: Waiting | None) -> None:
        """Note that the table or the store refuses for now, or with None that it does so no longer."""
        run = self.run
        if waiting is None:
            run.waiting = None
        else:
            error, since_ms = waiting.error, self._clock.wall_ms() if run.waiting is None else run.waiting.since_ms
            run.waiting = Trouble(code=error.code, message=error.message, since_ms=since_ms, attempts=waiting.attempts)
            run.retries += 1
        self._on_run(run)
        self._note()

    def end(self, state: str, error: TenureError | None = None) -> None:
        self.run.state, self.run.waiting = state, None
        if error is not None:
            self.run.error = {"code": error.code, "message": error.message}
        self._note()

    def _note(self) -> None:
        self.run.updated_ms = self._noted_ms = self._clock.wall_ms()
        note_run(self._url, self.run)


@contextmanager
def keep_note(pipeline: Pipeline, run: Run, *, stop: threading.Event, on_run: OnRun) -> Iterator[RunNote]:
    running = RunNote(pipeline, run, on_run=on_run)
    try:
        yield running
    except TenureError as error:
        running.end("failed", error)
        raise
    except KeyboardInterrupt:
        running.end("stopped")
        raise
    except Exception as error:  # Spark's own, from a step or a table
        failed = _failure(run, error)
        running.end("failed", failed)
        raise failed from error
    else:
        running.end("stopped" if stop.is_set() else "done")


def _failure(run: Run, error: Exception) -> TenureError:
    """Return one line about the failure of a job of Spark's."""
    behind = "" if run.high is None else f" behind batch {run.high}"
    return job_error(error, f"Spark could not bring the range{behind} through", code="pipeline_failed")
