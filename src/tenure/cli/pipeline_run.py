"""`tenure pipeline run`, `backfill` and `explain`: what needs Spark."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.status import Status

from tenure.cli.main import OK
from tenure.cli.pipeline_guard import guarded
from tenure.cli.pipeline_look import say, show_run
from tenure.cli.screen import Payload, console_for, document, escape, note
from tenure.cli.words import clean, count
from tenure.errors import Invalid

if TYPE_CHECKING:
    from tenure.spark.pipeline.config import Pipeline
    from tenure.spark.pipeline.record import Run
    from tenure.spark.pipeline.running import RunOptions

__all__ = ["Spark", "backfill", "explain", "run"]


class Spark(NamedTuple):
    """Where Spark is, as the command line says it."""

    master: str | None
    remote: str | None
    conf: list[str]

    def options(self, *, once: bool | None = None) -> RunOptions:
        """The same, checked. Raises Invalid."""
        from tenure.spark.pipeline.running import RunOptions

        if self.master is not None and self.remote is not None:
            raise Invalid("--master and --remote exclude each other")
        pairs = [text.partition("=") for text in self.conf]
        for (key, equals, _), text in zip(pairs, self.conf, strict=True):
            if not equals or not key.strip():
                raise Invalid(f"--conf wants KEY=VALUE; got {clean(text)!r}")
        conf = {key.strip(): value.strip() for key, _, value in pairs}
        schedule: Any = None if once is None else "once" if once else "follow"
        return RunOptions(master=self.master, remote=self.remote, conf=conf, schedule=schedule)


def run(file: Path, spark: Spark, *, once: bool | None, as_json: bool) -> int:
    """Run a pipeline and print what came of it; returns the exit code."""

    def work(pipeline: Pipeline, listening: _Listening) -> Run:
        from tenure.spark.pipeline.running import run_pipeline

        return run_pipeline(pipeline, spark.options(once=once), **listening.hooks())

    return _ran(file, work, as_json=as_json)


def backfill(file: Path, spark: Spark, *, into: str, first: str, last: str, as_json: bool) -> int:
    """Replay batches into another table and print what came of it; returns the exit code."""

    def work(pipeline: Pipeline, listening: _Listening) -> Run:
        from tenure.spark.pipeline.running import backfill_pipeline

        options = spark.options()
        return backfill_pipeline(pipeline, options, into=into, first=first, last=last, **listening.hooks())

    return _ran(file, work, as_json=as_json)


def explain(file: Path, spark: Spark, *, as_json: bool) -> int:
    """Print what a pipeline does, in words and as Spark plans it; returns the exit code."""

    def work() -> int:
        found = _explained(file, spark)
        if as_json:
            document(found)
            return OK
        console = console_for()
        for number, sentence in enumerate(found["steps"], start=1):
            say(console, f"{number}. {sentence}")
        console.out("\n" + found["plan"], highlight=False)
        return OK

    return guarded(work, as_json=as_json)


def _explained(file: Path, spark: Spark) -> Payload:
    from tenure.spark.pipeline import read_pipeline
    from tenure.spark.pipeline.outputs import Outputs
    from tenure.spark.pipeline.running import opened
    from tenure.spark.pipeline.stages import empty_range
    from tenure.spark.pipeline.words import described, plan_of

    pipeline = read_pipeline(file)
    outputs = Outputs(pipeline)
    session = opened(pipeline, outputs, spark.options())
    try:
        plan = plan_of(outputs.planned(empty_range(session)))
    finally:
        session.stop()
    return {"pipeline": pipeline.name, "steps": described(pipeline), "plan": plan}


def _ran(file: Path, work: Callable[[Pipeline, _Listening], Run], *, as_json: bool) -> int:
    def whole() -> int:
        import msgspec

        from tenure.spark.pipeline import read_pipeline

        pipeline = read_pipeline(file)
        with _Listening() as listening:
            done = work(pipeline, listening)
        payload: Payload = msgspec.to_builtins(done) | {"seconds": done.seconds, "entries_per_s": done.entries_per_s}
        if as_json:
            document(payload)
        else:
            _show(console_for(), pipeline, payload)
        return OK

    return guarded(whole, as_json=as_json)


def _show(console: Console, pipeline: Pipeline, run: Payload) -> None:
    say(console, f"{run['pipeline']}: {run['state']}")
    show_run(console, run)
    if run["figures"]["quarantined"] and pipeline.quarantine is not None:
        say(console, f"what was set aside is in {pipeline.quarantine.path}, with its reason")
    say(console, f"how it stands: tenure pipeline status {pipeline.file}")


class _Listening:
    """The line that shows how far a run is, and the signals that end it behind the range under way."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._line: Status | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Listening:
        if sys.stderr.isatty():
            self._line = Status("starting Spark", console=Console(stderr=True))
            self._line.start()
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._line is not None:
            self._line.stop()

    def hooks(self) -> dict[str, Any]:
        """What a run tells us through."""
        return {"stop": self._stop, "on_start": self._started, "on_range": self._reached}

    def _started(self, _session: object) -> None:
        self._listen()  # Spark has put a handler of its own in the place of ours
        self._say("reading")

    def _reached(self, run: Run, lag_batches: int) -> None:
        left = f", {count(lag_batches, 'batch', 'batches')} to come" if lag_batches else ""
        entries = count(run.figures.entries, "entry", "entries")
        self._say(f"{count(run.ranges, 'range')}, {entries}, {run.entries_per_s:,.0f} a second{left}")

    def _say(self, text: str) -> None:
        if self._line is not None:
            self._line.update(escape(text))

    def _listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        note("it ends behind the range under way; once more ends it at once")
