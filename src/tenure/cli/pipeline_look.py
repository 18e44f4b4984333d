"""`tenure pipeline validate` and `status`: what can be said without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tenure.cli.main import OK
from tenure.cli.screen import Payload, console_for, document
from tenure.cli.spark_guard import guarded
from tenure.cli.words import age, clean, count, when

if TYPE_CHECKING:
    from tenure.spark.pipeline.config import Pipeline
    from tenure.spark.pipeline.record import Run

__all__ = ["show_run", "status", "validate"]


def validate(file: Path, *, as_json: bool) -> int:
    """Print that a file is sound, or every mistake in it; returns the exit code."""

    def work() -> int:
        from tenure.spark.pipeline import validate_pipeline

        pipeline = validate_pipeline(file)
        if as_json:
            document({"pipeline": pipeline.name, "file": str(file), "problems": []})
        else:
            console_for().print(f"{file}: {pipeline.name} is sound", markup=False, soft_wrap=True)
        return OK

    return guarded(work, as_json=as_json)


def status(file: Path, *, as_json: bool) -> int:
    """Print how a pipeline stands; returns the exit code."""

    def work() -> int:
        found = _standing(file)
        if as_json:
            document(found)
        else:
            _show_status(console_for(), found)
        return OK

    return guarded(work, as_json=as_json)


def _standing(file: Path) -> Payload:
    import msgspec

    from tenure.spark.pipeline import read_pipeline
    from tenure.spark.pipeline.record import last_run

    pipeline = read_pipeline(file)
    run = last_run(pipeline.notes_url, pipeline.name)
    found = {"pipeline": pipeline.name} | (
        _of_buffer(pipeline) if pipeline.source.topic is None else _of_topic(pipeline, run)
    )
    rates = {} if run is None else {"seconds": run.seconds, "entries_per_s": run.entries_per_s}
    return found | {"last_run": None if run is None else msgspec.to_builtins(run) | rates}


def _of_buffer(pipeline: Pipeline) -> Payload:
    import asyncio

    from tenure.buffer import stat

    buffer = asyncio.run(stat(pipeline.buffer_url))
    group = next((one for one in buffer.groups if one.group == pipeline.source.group), None)
    return {
        "buffer": buffer.url,
        "group": pipeline.source.group,
        "started": group is not None and bool(group.consumer),
        "last_acked": None if group is None else group.last_acked,
        "lag_batches": buffer.next_seq if group is None else group.lag_batches,
        "lag_ms": None if group is None else group.lag_ms,
    }


def _of_topic(pipeline: Pipeline, run: Run | None) -> Payload:
    from tenure.spark.pipeline.topics import lag_records

    last = None if run is None else run.reached
    return {
        "topic": pipeline.source.topic,
        "url": pipeline.source.url,
        "started": run is not None,
        "lag_records": lag_records(pipeline, last),
    }


def _show_status(console: Console, found: Payload) -> None:
    if "topic" in found:
        behind = count(found["lag_records"], "record")
        say(console, f"{found['pipeline']}: topic {found['topic']} of {found['url']} is {behind} ahead of the table")
    else:
        behind = count(found["lag_batches"], "batch", "batches")
        waits = f", the oldest for {age(found['lag_ms'])}" if found["lag_ms"] else ""
        say(console, f"{found['pipeline']}: group {found['group']} of {found['buffer']} is {behind} behind{waits}")
    run = found["last_run"]
    if run is None:
        say(console, "it has not run yet" if not found["started"] else "no run of it is noted")
        return
    noted = "to" if run["state"] != "running" else "on, noted last"
    say(console, f"last run: {run['state']}, {when(run['started_ms'])} {noted} {when(run['updated_ms'])}")
    show_run(console, run)
    if run["waiting"]:
        tried = count(run["waiting"]["attempts"], "attempt")
        say(console, f"it waits, and tries again: {tried} since {when(run['waiting']['since_ms'])}")
        say(console, f"because: {run['waiting']['message']}")
    if run["error"]:
        say(console, f"last error: {run['error']['message']}")


def show_run(console: Console, run: Payload) -> None:
    """A run in figures."""
    figures = run["figures"]
    if run["high"] is None:
        held = f": the table holds {count(run['passed_over'], 'batch', 'batches')} of the range already"
        say(console, f"nothing was written{held if run['passed_over'] else ''}")
        return
    what = ("record",) if run["source"].startswith("topic ") else ("batch", "batches")
    batches = f"{count(run['batches'], *what)} ({run['low']} to {run['high']})"
    ranges = count(run["ranges"], "range")
    say(console, f"{ranges}, {batches}, {count(figures['entries'], 'entry', 'entries')} in {run['seconds']:.1f} s")
    parts = [f"{count(figures['rows'], 'row')} written to {run['into']}"]
    parts += [f"{figures[name]:,} {name}" for name in ("malformed", "quarantined", "dropped") if figures[name]]
    say(console, ", ".join(parts))
    for name, failed in figures["failed"].items():
        if failed:
            say(console, f"  {name}: {count(failed, 'row fails', 'rows fail')} it")


def say(console: Console, text: str) -> None:
    console.print(clean(text), markup=False, soft_wrap=True)
