"""Running a pipeline: a session, the job that its schedule asks for, and a note of what came of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tenure import errors
from tenure.buffer.inspect import buffer_id
from tenure.buffer.loop import background
from tenure.clock import SystemClock
from tenure.errors import Conflict, Invalid, LeaseLost, TenureError
from tenure.spark.ingesting import follow, ingest
from tenure.spark.mover import Done
from tenure.spark.pipeline.config import Pipeline
from tenure.spark.pipeline.outputs import Outputs
from tenure.spark.pipeline.record import Run, Trouble, note_run
from tenure.spark.pipeline.stages import empty_range
from tenure.spark.pipeline.tables import place_of, side_path
from tenure.spark.plan import Limits
from tenure.spark.replaying import backfill, retained
from tenure.spark.retrying import Waiting
from tenure.spark.session import open_session, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OnRun", "RunOptions", "backfill_pipeline", "opened", "run_pipeline"]

OnRun = Callable[[Run, int], None]
"""Told of a run after every range and whenever it waits, with the number of batches that are still to come."""

_NOTE_EVERY_MS: Final = 5_000
_OURS: Final = re.compile(r"\btenure\.(?:[a-z_]+\.)*(\w+): (.+)")
_REASON_MAX: Final = 400


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where Spark is, and what the command line says over the file."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = {}
    schedule: Literal["once", "follow", "streaming"] | None = None


class _Running:
    """One run on its way: counts ranges, tells of them and of what it waits for, and notes that now and then."""

    def __init__(self, pipeline: Pipeline, run: Run, *, tell: OnRun) -> None:
        self._clock = SystemClock()
        self._url, self._tell = pipeline.notes_url, tell
        self.run = run
        self._lag_batches = 0
        run.started_ms = self._clock.wall_ms()
        self._note()

    def count(self, done: Done) -> None:
        """A range is in the table."""
        run, summary = self.run, done.summary
        run.ranges, run.batches, run.low, run.high = summary.ranges, summary.batches, summary.low, summary.high
        run.updated_ms = self._clock.wall_ms()
        self._lag_batches = done.lag.batches
        self._tell(run, self._lag_batches)
        if run.updated_ms - self._noted_ms >= _NOTE_EVERY_MS:
            self._note()

    def wait(self, waiting: Waiting | None) -> None:
        """The table or the store refuses for now, or does so no longer."""
        run = self.run
        if waiting is None:
            run.waiting = None
        else:
            error, since_ms = waiting.error, self._clock.wall_ms() if run.waiting is None else run.waiting.since_ms
            run.waiting = Trouble(code=error.code, message=error.message, since_ms=since_ms, attempts=waiting.attempts)
            run.retries += 1
        self._tell(run, self._lag_batches)
        self._note()

    def end(self, state: str, error: TenureError | None = None) -> None:
        self.run.state, self.run.waiting = state, None
        if error is not None:
            self.run.error = {"code": error.code, "message": error.message}
        self._note()

    def _note(self) -> None:
        self.run.updated_ms = self._noted_ms = self._clock.wall_ms()
        note_run(self._url, self.run)


def opened(pipeline: Pipeline, outputs: Outputs, options: RunOptions) -> SparkSession:
    """A session with what the pipeline's tables need. Raises Invalid where it cannot be had."""
    remote = options.remote is not None and not options.remote.startswith("local")
    # What a server of Spark Connect has was decided where it was started; its version may differ from ours.
    needs = [] if remote else [outputs.needs(spark_version())]
    return open_session(
        f"tenure {pipeline.name}", master=options.master, remote=options.remote, conf=options.conf, needs=needs
    )


def run_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    *,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[SparkSession], None] = lambda _: None,
    on_range: OnRun = lambda _run, _lag: None,
) -> Run:
    """Run a pipeline as its schedule says, until everything is written or ``stop`` is set, between two ranges.

    Without ``spark`` a session is started, and stopped behind the run. ``on_start`` is called once Spark has started.
    Raises NotFound (``no_buffer``), Invalid where Spark does not start or the pipeline cannot be planned
    (``bad_step``), Conflict (``expectation_failed``, ``pipeline_failed``), and what ``ingest`` raises. What was
    written stays, and the next run goes on behind it.
    """
    schedule = _schedule(pipeline, options)
    outputs = Outputs(pipeline)
    stop = stop or threading.Event()
    run = _begun(pipeline, schedule)

    def work(session: SparkSession, running: _Running) -> None:
        told: dict[str, Any] = {"on_range": running.count, "stop": stop, "on_wait": running.wait}
        if schedule == "streaming" or pipeline.source.topic is not None:
            from tenure.spark.pipeline.streamed import stream

            stream(session, pipeline, outputs, once=schedule == "once", **told)
            return
        told |= {"group": pipeline.source.group, "reader": pipeline.source.reader, "limits": _limits(pipeline)}
        if schedule == "once":
            ingest(session, pipeline.buffer_url, outputs, **told)
        else:
            follow(session, pipeline.buffer_url, outputs, poll_ms=pipeline.schedule.every_ms, **told)

    return _guarded(pipeline, outputs, options, run, work, spark=spark, stop=stop, on_start=on_start, on_range=on_range)


def backfill_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    *,
    into: str,
    first: int | str,
    last: int | str,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[SparkSession], None] = lambda _: None,
    on_range: OnRun = lambda _run, _lag: None,
) -> Run:
    """Replay batches that the buffer keeps through the pipeline into another table; no group moves.

    Side tables get a place of their own, named after ``into``. Raises as ``run_pipeline`` and ``backfill`` do.
    """
    if pipeline.source.topic is not None:
        raise Invalid(
            "a topic is not replayed in parts: a pipeline with another sink and another checkpoint reads all of it",
            code="bad_pipeline",
        )
    if into in (pipeline.sink.path, pipeline.sink.table, pipeline.sink.topic):
        raise Invalid(f"{into} is the pipeline's own table, which holds these batches: name a new one", code="bad_into")
    retained(pipeline.buffer_url, first, last)  # ends that are none are refused before Spark starts
    outputs = Outputs(pipeline, into=into)
    stop = stop or threading.Event()
    run = _begun(pipeline, "backfill", into=into)

    def work(session: SparkSession, running: _Running) -> None:
        summary = backfill(
            session,
            pipeline.buffer_url,
            outputs,
            first,
            last,
            reader=pipeline.source.reader,
            limits=_limits(pipeline),
            on_range=running.count,
            stop=stop,
            on_wait=running.wait,
        )
        run.passed_over = summary.passed_over

    return _guarded(pipeline, outputs, options, run, work, spark=spark, stop=stop, on_start=on_start, on_range=on_range)


def _guarded(
    pipeline: Pipeline,
    outputs: Outputs,
    options: RunOptions,
    run: Run,
    work: Callable[[SparkSession, _Running], None],
    *,
    spark: SparkSession | None,
    stop: threading.Event,
    on_start: Callable[[SparkSession], None],
    on_range: OnRun,
) -> Run:
    """The run from the session to its note, whatever comes of it. Raises NotFound (``no_buffer``) before it starts: a
    note alone would look like something else to the producer that makes the buffer.
    """
    if pipeline.source.topic is None:
        background().run(buffer_id(pipeline.buffer_url))
    run.figures = outputs.figures
    with _noted(pipeline, run, stop=stop, tell=on_range) as running:
        session = spark or opened(pipeline, outputs, options)
        try:
            on_start(session)
            outputs.planned(empty_range(session))
            work(session, running)
        finally:
            if spark is None:
                session.stop()
    return run


@contextmanager
def _noted(pipeline: Pipeline, run: Run, *, stop: threading.Event, tell: OnRun) -> Iterator[_Running]:
    running = _Running(pipeline, run, tell=tell)
    try:
        yield running
    except TenureError as error:
        running.end("failed", error)
        raise
    except KeyboardInterrupt:
        running.end("stopped")
        raise
    except Exception as error:  # Spark's own, out of a step or a table
        told = _failure(run, error)
        running.end("failed", told)
        raise told from error
    else:
        running.end("stopped" if stop.is_set() else "done")


def _failure(run: Run, error: Exception) -> TenureError:
    """One line about what Spark gave up over; an error of ours that a task raised is that error again."""
    told = str(error)
    ours = _OURS.search(told)
    kind = getattr(errors, ours[1], None) if ours is not None else None
    if ours is not None and isinstance(kind, type) and issubclass(kind, TenureError):
        return kind(ours[2][:_REASON_MAX].strip(), code="fenced" if kind is LeaseLost else "pipeline_failed")
    lines = [" ".join(line.split()) for line in told.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("[")), lines[0] if lines else type(error).__name__)
    behind = "" if run.high is None else f" behind batch {run.high}"
    return Conflict(
        f"Spark could not bring the range{behind} through: {reason[:_REASON_MAX]}. Nothing of it was written to the "
        "table; mend the data or the step, and run again",
        code="pipeline_failed",
    )


def _begun(pipeline: Pipeline, schedule: str, *, into: str | None = None) -> Run:
    """The note of a run, or of a backfill into another table, before anything has happened."""
    return Run(
        pipeline=pipeline.name if into is None else f"{pipeline.name}.backfill",
        schedule=schedule,
        source=pipeline.source.place,
        into=place_of(pipeline, into),
        aside=None if pipeline.quarantine is None else side_path(pipeline.quarantine.path, into),
    )


def _schedule(pipeline: Pipeline, options: RunOptions) -> Literal["once", "follow", "streaming"]:
    """What the command line asks for, or else the file. Raises Invalid for what the file is not made for."""
    schedule = options.schedule or pipeline.schedule.run
    if schedule == "follow" and pipeline.source.topic is not None:
        schedule = "streaming"  # which is how a topic is followed
    if schedule == "streaming" and pipeline.schedule.checkpoint is None:
        raise Invalid('run = "streaming" needs a checkpoint in [schedule]', code="bad_pipeline")
    return schedule


def _limits(pipeline: Pipeline) -> Limits:
    source = pipeline.source
    return Limits(entries_max=source.entries_max, bytes_max=source.bytes_max, batches_max=source.batches_max)
