"""`tenure pipeline run`, `backfill` and `explain`: the commands that need Spark."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tenure.cli.guard import run_guarded
from tenure.cli.main import INTERRUPTED, OK
from tenure.cli.pipeline.status import describe_lag, known, print_line, run_payload, show_run
from tenure.cli.screen import Payload, console_for, document, note, table
from tenure.cli.spark.options import Where, status_line
from tenure.cli.words import clean, count, size

if TYPE_CHECKING:
    from tenure.spark.pipeline.file.sections import Pipeline
    from tenure.spark.pipeline.notes.run import Run
    from tenure.spark.pipeline.runner.runner import RunOptions

__all__ = ["backfill", "explain", "run"]


def run(file: Path, where: Where, *, once: bool | None, from_here: bool, as_json: bool) -> int:
    """Run a pipeline and print its figures; returns the exit code."""

    def work(pipeline: Pipeline, control: _RunControl) -> Run:
        from tenure.spark.pipeline.runner.runner import run_pipeline

        return run_pipeline(pipeline, _options(where, once=once, from_here=from_here), **control.hooks())

    return _run_and_print(file, work, as_json=as_json)


def backfill(file: Path, where: Where, *, into: str, first: str, last: str, as_json: bool) -> int:
    """Replay batches into another table and print the figures; returns the exit code."""

    def work(pipeline: Pipeline, control: _RunControl) -> Run:
        from tenure.spark.pipeline.runner.runner import backfill_pipeline

        options = _options(where)
        return backfill_pipeline(pipeline, options, into=into, first=first, last=last, **control.hooks())

    return _run_and_print(file, work, as_json=as_json)


def explain(file: Path, where: Where, *, plan: bool, as_json: bool) -> int:
    """Print the steps of a pipeline, the columns of its table and, with ``plan``, Spark's plan; returns
    the exit code.
    """

    def work() -> int:
        found = _explain(file, where, with_plan=plan)
        if as_json:
            document(found)
            return OK
        console = console_for()
        for number, sentence in enumerate(found["steps"], start=1):
            print_line(console, f"{number}. {sentence}")
        console.print()
        table(console, ("column", "type"), [(each["name"], each["type"]) for each in found["columns"]])
        if plan:
            console.out("\n" + found["plan"], highlight=False)
        return OK

    return run_guarded(work, as_json=as_json)


def _options(where: Where, *, once: bool | None = None, from_here: bool = False) -> RunOptions:
    from tenure.spark.pipeline.runner.runner import RunOptions

    schedule: Any = None if once is None else "once" if once else "follow"
    return RunOptions(master=where.master, remote=where.remote, conf=where.conf, schedule=schedule, from_here=from_here)


def _explain(file: Path, where: Where, *, with_plan: bool) -> Payload:
    from tenure.spark.pipeline import read_pipeline
    from tenure.spark.pipeline.describe import describe, plan_of
    from tenure.spark.pipeline.rows.outputs import Outputs
    from tenure.spark.pipeline.rows.stages import empty_range
    from tenure.spark.pipeline.runner.runner import open_for

    pipeline = read_pipeline(file)
    outputs = Outputs(pipeline)
    session = open_for(pipeline, outputs, _options(where))
    try:
        rows = outputs.plan(empty_range(session))
        columns = [{"name": each.name, "type": each.dataType.simpleString()} for each in rows.schema.fields]
        plan = {"plan": plan_of(rows)} if with_plan else {}
    finally:
        session.stop()
    return {"pipeline": pipeline.name, "steps": describe(pipeline), "columns": columns} | plan


def _run_and_print(file: Path, work: Callable[[Pipeline, _RunControl], Run], *, as_json: bool) -> int:
    def whole() -> int:
        from tenure.spark.pipeline import read_pipeline

        pipeline = read_pipeline(file)
        with status_line() as show_status, _RunControl(show_status) as control:
            done = work(pipeline, control)
        payload = run_payload(done)
        if as_json:
            document(payload)
        else:
            _show(console_for(), pipeline, payload)
        # Only a run that ends by itself was interrupted; one that follows always ends by a signal.
        return INTERRUPTED if done.state == "stopped" and done.schedule in ("once", "backfill") else OK

    return run_guarded(whole, as_json=as_json)


def _show(console: Console, pipeline: Pipeline, run: Payload) -> None:
    print_line(console, f"{run['pipeline']}: {run['state']}")
    show_run(console, run)
    if run["figures"]["quarantined"]:
        print_line(console, f"what was set aside is in {run['aside']}, with its reason")
    if run["schedule"] != "backfill":
        print_line(console, f"how it stands: tenure pipeline status {pipeline.file}")


class _RunControl:
    """Shows the progress of a run, and ends it on a signal after the range under way."""

    def __init__(self, show_status: Callable[[str], None]) -> None:
        self._stop = threading.Event()
        self._show_status = show_status
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _RunControl:
        self._catch_signals()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hooks(self) -> dict[str, Any]:
        """Return the callbacks and the stop event for a run."""
        return {"stop": self._stop, "on_start": self._started, "on_range": self._reached}

    def _started(self, _session: object) -> None:
        self._catch_signals()  # Spark has replaced our signal handlers
        self._show_status("reading")

    def _reached(self, run: Run) -> None:
        left = f", {describe_lag(run.lag, run.lag_ms, run.source)} to come" if run.lag else ""
        entries = known(run.figures.entries, "entry", "entries")
        stored = f", {size(run.bytes)}" if run.bytes else ""
        waits = "" if run.waiting is None else f"; waiting, {run.waiting.message}"
        if run.waiting is not None and run.waiting.attempts == 1:
            note(f"this is refused for now, and tried again: {run.waiting.message}")
        per_s = run.entries_per_s
        rate = "" if per_s is None else f", {per_s:,.{0 if per_s >= 10 else 1}f} a second"
        self._show_status(f"{count(run.ranges, 'range')}, {entries}{stored}{rate}{left}{clean(waits)}")

    def _catch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        note("it ends behind the range under way; once more ends it at once")
