"""`tenure pipeline validate` and `status`: check a pipeline file, and show its lag and its runs; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tenure.cli.guard import run_guarded
from tenure.cli.main import OK
from tenure.cli.pipeline.metrics import metrics_of
from tenure.cli.screen import Payload, console_for, document, table
from tenure.cli.words import age, clean, count, size, when

if TYPE_CHECKING:
    from tenure.spark.pipeline.file.sections import Pipeline
    from tenure.spark.pipeline.notes.run import Run

__all__ = ["accept", "describe_lag", "known", "print_line", "run_payload", "show_run", "status", "validate"]

_HEADS = (
    "started",
    "schedule",
    "state",
    "took#",
    "ranges#",
    "entries#",
    "stored#",
    "rows#",
    "left out#",
    "aside#",
    "up to#",
    "idle#",
)

_LEFT_OUT = ("malformed", "quarantined", "dropped")


def validate(file: Path, *, as_json: bool) -> int:
    """Print that a file is valid, or every mistake in it; returns the exit code."""

    def work() -> int:
        from tenure.spark.pipeline import validate_pipeline

        pipeline = validate_pipeline(file)
        if as_json:
            document({"pipeline": pipeline.name, "file": str(file), "problems": []})
        else:
            console_for().print(f"{file}: {pipeline.name} is sound", markup=False, soft_wrap=True)
        return OK

    return run_guarded(work, as_json=as_json)


def status(file: Path, *, history: bool, as_metrics: bool, as_json: bool) -> int:
    """Print the lag and the last run of a pipeline, with ``history`` all recorded runs; returns the exit code."""

    def work() -> int:
        found = _find_status(file, history=history)
        if as_metrics:
            console_for().out(metrics_of(found), end="", highlight=False)
        elif as_json:
            document(found)
        else:
            _show_status(console_for(), found)
        return OK

    return run_guarded(work, as_json=as_json)


def accept(file: Path, low: int, high: int, *, as_json: bool) -> int:
    """Accept a range that did not balance; returns the exit code."""

    def work() -> int:
        import msgspec

        from tenure.spark.pipeline import read_pipeline
        from tenure.spark.pipeline.notes.unbalanced import accept_unbalanced

        pipeline = read_pipeline(file)
        found = accept_unbalanced(pipeline.notes_url, pipeline.name, low, high)
        if as_json:
            document(msgspec.to_builtins(found))
        else:
            print_line(console_for(), f"{pipeline.name}: batches {low} to {high} are accepted as they are")
        return OK

    return run_guarded(work, as_json=as_json)


def _find_status(file: Path, *, history: bool) -> Payload:
    import msgspec

    from tenure.spark.pipeline import read_pipeline
    from tenure.spark.pipeline.notes.history import runs_of
    from tenure.spark.pipeline.notes.unbalanced import unbalanced_of

    pipeline = read_pipeline(file)
    runs = runs_of(pipeline.notes_url, pipeline.name)
    last, wrote = next(iter(runs), None), next((run for run in runs if run.high is not None), None)
    found: Payload = {"pipeline": pipeline.name} | (
        _of_buffer(pipeline) if pipeline.source.topic is None else _of_topic(pipeline, last)
    )
    found |= {"last_run": last and run_payload(last), "last_written": wrote and run_payload(wrote)}
    found["unbalanced"] = [msgspec.to_builtins(each) for each in unbalanced_of(pipeline.notes_url, pipeline.name)]
    if history:
        runs += runs_of(pipeline.notes_url, f"{pipeline.name}.backfill")
        found["history"] = [run_payload(run) for run in sorted(runs, key=lambda run: run.started_ms, reverse=True)]
    return found


def run_payload(run: Run) -> Payload:
    """Return a run with what follows from its figures."""
    import msgspec

    plain: Payload = msgspec.to_builtins(run)
    return plain | {"seconds": run.seconds, "entries_per_s": run.entries_per_s, "balance": run.figures.balance}


def _of_buffer(pipeline: Pipeline) -> Payload:
    import asyncio

    from tenure.buffer.manifest.groups import group_stat
    from tenure.objects.store import open_store

    store = open_store(pipeline.buffer_url)
    group = asyncio.run(group_stat(store, pipeline.source.group))
    return {
        "buffer": store.url,
        "group": group.group,
        "started": bool(group.consumer),
        "last_acked": group.last_acked,
        "lag_batches": group.lag_batches,
        "lag_ms": group.lag_ms,
    }


def _of_topic(pipeline: Pipeline, run: Run | None) -> Payload:
    from tenure.spark.pipeline.runner.topics import topic_lag

    lag = topic_lag(pipeline, None if run is None else run.reached)
    return {
        "topic": pipeline.source.topic,
        "url": pipeline.source.url,
        "started": run is not None,
        "lag_records": lag.batches,
        "lag_ms": lag.ms,
    }


def _show_status(console: Console, found: Payload) -> None:
    print_line(console, f"{found['pipeline']}: {_describe_lag(found)}")
    for each in found["unbalanced"]:
        said = "accepted" if each["accepted"] else "not accepted"
        print_line(console, f"unbalanced, {said}: {each['message']}")
    run, wrote = found["last_run"], found["last_written"]
    if run is None:
        print_line(console, "it has not run yet" if not found["started"] else "no run of it is noted")
        return
    _show_last(console, "last run", run)
    if run["idle_before"]:
        print_line(console, f"{count(run['idle_before'], 'run')} before it had nothing to write")
    if run["waiting"]:
        tried = count(run["waiting"]["attempts"], "attempt")
        print_line(console, f"it waits, and tries again: {tried} since {when(run['waiting']['since_ms'])}")
        print_line(console, f"because: {run['waiting']['message']}")
    if run["error"]:
        print_line(console, f"last error: {run['error']['message']}")
    if wrote is not None and wrote["started_ms"] != run["started_ms"]:
        _show_last(console, "last run that wrote", wrote)
    if "history" in found:
        _show_history(console, found["history"])


def _describe_lag(found: Payload) -> str:
    """Format how far the table is behind its source."""
    waits = f", the oldest for {age(found['lag_ms'])}" if found["lag_ms"] else ""
    if "topic" in found:
        ahead = count(found["lag_records"], "record")
        return f"topic {found['topic']} of {found['url']} is {ahead} ahead of the table{waits}"
    group, late = f"group {found['group']} of {found['buffer']}", count(found["lag_batches"], "batch", "batches")
    return f"{group} is {late} behind{waits}" if found["started"] else f"{group} has not started: {late} to read{waits}"


def _show_last(console: Console, what: str, run: Payload) -> None:
    noted = "to" if run["state"] != "running" else "on, noted last"
    print_line(console, f"{what}: {run['state']}, {when(run['started_ms'])} {noted} {when(run['updated_ms'])}")
    show_run(console, run)


def _show_history(console: Console, runs: list[Payload]) -> None:
    """Print one line per run, newest first."""
    console.print()
    table(console, _HEADS, [_line(run) for run in runs])
    for run in runs:
        if run["error"]:
            print_line(console, f"{when(run['started_ms'])}: {run['error']['message']}")


def _line(run: Payload) -> list[object]:
    figures = {name: "unknown" if value is None else value for name, value in run["figures"].items()}
    return [
        when(run["started_ms"]),
        run["schedule"],
        run["state"] if run["high"] is not None or run["state"] != "done" else "nothing to write",
        age(run["updated_ms"] - run["started_ms"]),
        run["ranges"],
        figures["entries"],
        "" if run["bytes"] is None else size(run["bytes"]),
        figures["rows"],
        _left_out(run["balance"]),
        figures["quarantined"],
        run["high"],
        run["idle_before"],
    ]


def _left_out(balance: dict[str, int | None]) -> str:
    """Format what all stages left out: entries less rows, below 0 where steps made rows."""
    terms = [number for name, number in balance.items() if name != "rows"]
    return _number(None if None in terms else sum(number or 0 for number in terms))


def known(number: int | None, one: str, many: str) -> str:
    """Format a count that may be unknown."""
    return f"an unknown number of {many}" if number is None else count(number, one, many)


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def describe_lag(lag: int, lag_ms: int | None, source: str) -> str:
    """Format how much is still to come, and how long the first of it has waited."""
    what = ("record",) if source.startswith("topic ") else ("batch", "batches")
    return f"{count(lag, *what)}{f' of {age(lag_ms)}' if lag_ms else ''}"


def show_run(console: Console, run: Payload) -> None:
    """Print the figures of a run."""
    figures = run["figures"]
    if run["high"] is None:
        held = f": the table holds {count(run['passed_over'], 'batch', 'batches')} of the range already"
        print_line(console, f"nothing was written{held if run['passed_over'] else ''}")
        return
    what = ("record",) if run["source"].startswith("topic ") else ("batch", "batches")
    batches = f"{count(run['batches'], *what)} ({run['low']} to {run['high']})"
    ranges = count(run["ranges"], "range")
    stored = f", {size(run['bytes'])} stored" if run["bytes"] else ""
    entries = known(figures["entries"], "entry", "entries")
    print_line(console, f"{ranges}, {batches}, {entries}{stored} in {run['seconds']:.1f} s")
    if run["lag"]:
        print_line(console, f"{describe_lag(run['lag'], run['lag_ms'], run['source'])} to come when it was noted")
    elif run["lag"] is None:
        print_line(console, "what was still to come when it was noted is not known")
    parts = [f"{known(figures['rows'], 'row', 'rows')} written to {run['into']}"]
    parts += [f"{_number(figures[name])} {name}" for name in _LEFT_OUT if figures[name] != 0]
    if figures["duplicates"] != 0:
        parts.append(known(figures["duplicates"], "duplicate", "duplicates"))
    print_line(console, ", ".join(parts))
    if figures["unchecked"]:
        print_line(console, f"not checked, as a count was not to be had: {', '.join(figures['unchecked'])}")
    for name, failed in figures["failed"].items():
        if failed:
            print_line(console, f"  {name}: {count(failed, 'row fails', 'rows fail')} it")
    if any(number != 0 for name, number in run["balance"].items() if name != "rows"):
        print_line(console, f"  {_equation(entries, run['balance'])}")


def _equation(entries: str, balance: dict[str, int | None]) -> str:
    """Return the entries, and what stages added, as the sum of the rows and what each stage left out."""
    terms = [(name, number) for name, number in balance.items() if name != "rows" and number != 0]
    added = [f"{-number:,} added by {name}" for name, number in terms if number is not None and number < 0]
    left_out = [f"{_number(number)} left out by {name}" for name, number in terms if number is None or number > 0]
    return f"{' + '.join([entries, *added])} = {' + '.join([known(balance['rows'], 'row', 'rows'), *left_out])}"


def print_line(console: Console, text: str) -> None:
    console.print(clean(text), markup=False, soft_wrap=True)
