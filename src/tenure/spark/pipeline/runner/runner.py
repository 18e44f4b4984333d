"""Run a pipeline: open a session, start the job that its schedule asks for, and note the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tenure.buffer.collecting.retention import ask_retention
from tenure.buffer.inspect import buffer_id
from tenure.errors import Conflict, Invalid
from tenure.objects.background import background
from tenure.spark.jobs.backfill import backfill, find_retained
from tenure.spark.jobs.ingest import follow, ingest
from tenure.spark.jobs.plan import Limits
from tenure.spark.pipeline.file.sections import Pipeline
from tenure.spark.pipeline.file.sink import place_of, side_path
from tenure.spark.pipeline.notes.note import OnRun, RunNote, keep_note
from tenure.spark.pipeline.notes.run import Run
from tenure.spark.pipeline.notes.unbalanced import demand_accepted, forget_settled, note_unbalanced, unbalanced_of
from tenure.spark.pipeline.rows.outputs import Outputs
from tenure.spark.pipeline.rows.stages import empty_range
from tenure.spark.pipeline.runner.new_table import demand_known_table
from tenure.spark.session.jvm_start import explain
from tenure.spark.session.session import open_session, spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RunOptions", "backfill_pipeline", "open_for", "run_pipeline"]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run: where Spark is, and what the command line overrides."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = {}
    schedule: Literal["once", "follow", "streaming"] | None = None
    from_here: bool = False
    """Whether a new table may begin where the group is."""


def open_for(pipeline: Pipeline, outputs: Outputs, options: RunOptions) -> SparkSession:
    """Open a session with what the pipeline's tables need. Raises Invalid where that fails."""
    remote = options.remote is not None and not options.remote.startswith("local")
    # A Spark Connect server's packages were chosen where it was started; its version may differ from ours.
    needs = [] if remote else [outputs.needs(spark_version())]
    session = open_session(
        f"tenure {pipeline.name}", master=options.master, remote=options.remote, conf=options.conf, needs=needs
    )
    try:
        empty_range(session)  # Spark checks some settings only on first use
    except Exception as error:
        session.stop()
        raise explain(_innermost(error), where=options.remote or options.master or "this machine") from error
    return session


def _innermost(error: Exception) -> Exception:
    """Return the innermost cause of an error of Spark's."""
    while isinstance(cause := getattr(error, "_cause", None), Exception):
        error = cause
    return error


def run_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    *,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    on_start: Callable[[SparkSession], None] = lambda _: None,
    on_range: OnRun = lambda _: None,
) -> Run:
    """Run a pipeline as its schedule says, until everything is written or ``stop`` is set, between two ranges.

    Without ``spark`` a session is started, and stopped after the run. ``on_start`` is called once Spark has started.
    Raises NotFound (``no_buffer``), Invalid where Spark does not start or the pipeline cannot be planned
    (``bad_step``), Conflict (``expectation_failed``, ``pipeline_failed``, ``table_new``), and what ``ingest`` raises.
    What was written stays, and the next run continues after it.
    """
    schedule = _schedule(pipeline, options)
    outputs = Outputs(pipeline)
    stop = stop or threading.Event()
    run = _new_run(pipeline, schedule)

    def work(session: SparkSession, running: RunNote) -> None:
        with _stopped_by_unbalanced(pipeline, outputs, run):
            write(session, running)

    def write(session: SparkSession, running: RunNote) -> None:
        if not options.from_here:
            outputs.on_begin = partial(demand_known_table, pipeline, reached=run.reached)
        hooks: dict[str, Any] = {"on_range": running.count, "stop": stop, "on_wait": running.wait}
        if schedule == "streaming" or pipeline.source.topic is not None:
            from tenure.spark.pipeline.runner.streaming import stream

            stream(session, pipeline, outputs, once=schedule == "once", **hooks)
            return
        hooks |= {"group": pipeline.source.group, "reader": pipeline.source.reader, "limits": _limits(pipeline)}
        if schedule == "once":
            ingest(session, pipeline.buffer_url, outputs, **hooks)
        else:
            follow(session, pipeline.buffer_url, outputs, poll_ms=pipeline.schedule.every_ms, **hooks)

    return _run_noted(
        pipeline, outputs, options, run, work, spark=spark, stop=stop, on_start=on_start, on_range=on_range
    )


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
    on_range: OnRun = lambda _: None,
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
    find_retained(pipeline.buffer_url, first, last)  # malformed ends are refused before Spark starts
    outputs = Outputs(pipeline, into=into)
    stop = stop or threading.Event()
    run = _new_run(pipeline, "backfill", into=into)

    def work(session: SparkSession, running: RunNote) -> None:
        summary = backfill(
            session,
            pipeline.buffer_url,
            outputs,
            first,
            last,
            group=pipeline.source.group,
            reader=pipeline.source.reader,
            limits=_limits(pipeline),
            on_range=running.count,
            stop=stop,
            on_wait=running.wait,
        )
        run.passed_over = summary.passed_over

    return _run_noted(
        pipeline, outputs, options, run, work, spark=spark, stop=stop, on_start=on_start, on_range=on_range
    )


def _run_noted(
    pipeline: Pipeline,
    outputs: Outputs,
    options: RunOptions,
    run: Run,
    work: Callable[[SparkSession, RunNote], None],
    *,
    spark: SparkSession | None,
    stop: threading.Event,
    on_start: Callable[[SparkSession], None],
    on_range: OnRun,
) -> Run:
    """Do the run from the session to its note, and note any failure.

    Raises NotFound (``no_buffer``) before it starts: a note alone would make the prefix foreign to the producer that
    creates the buffer.
    """
    if pipeline.source.topic is None:
        background().run(buffer_id(pipeline.buffer_url))
        if wanted_ms := pipeline.source.retain_for_ms:
            background().run(ask_retention(pipeline.buffer_url, wanted_ms))
    run.figures = outputs.figures
    with keep_note(pipeline, run, stop=stop, on_run=on_range) as running:
        session = spark or open_for(pipeline, outputs, options)
        try:
            on_start(session)
            outputs.plan(empty_range(session))
            work(session, running)
        finally:
            if spark is None:
                session.stop()
    return run


@contextmanager
def _stopped_by_unbalanced(pipeline: Pipeline, outputs: Outputs, run: Run) -> Iterator[None]:
    """Run unless a range that did not balance waits for an operator, and note one that does not balance now."""
    noted = unbalanced_of(pipeline.notes_url, pipeline.name)
    demand_accepted(noted, pipeline.file)
    outputs.accepted = frozenset(each.range for each in noted if each.accepted)
    try:
        yield
    except Conflict as error:
        if error.code == "unbalanced":
            note_unbalanced(pipeline.notes_url, pipeline.name, error)
        raise
    forget_settled(pipeline.notes_url, pipeline.name, noted, reached=run.high)


def _new_run(pipeline: Pipeline, schedule: str, *, into: str | None = None) -> Run:
    """Return the note of a run, or of a backfill into another table, before anything has happened."""
    return Run(
        pipeline=pipeline.name if into is None else f"{pipeline.name}.backfill",
        schedule=schedule,
        source=pipeline.source.place,
        into=place_of(pipeline, into),
        aside=None if pipeline.quarantine is None else side_path(pipeline.quarantine.path, into),
    )


def _schedule(pipeline: Pipeline, options: RunOptions) -> Literal["once", "follow", "streaming"]:
    """Return the schedule of the command line, or else of the file. Raises Invalid for one that the file lacks."""
    schedule = options.schedule or pipeline.schedule.run
    if schedule == "follow" and pipeline.source.topic is not None:
        schedule = "streaming"  # which is how a topic is followed
    if schedule == "streaming" and pipeline.schedule.checkpoint is None:
        raise Invalid('run = "streaming" needs a checkpoint in [schedule]', code="bad_pipeline")
    return schedule


def _limits(pipeline: Pipeline) -> Limits:
    source = pipeline.source
    return Limits(entries_max=source.entries_max, bytes_max=source.bytes_max, batches_max=source.batches_max)
