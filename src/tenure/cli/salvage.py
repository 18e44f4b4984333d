"""`tenure verify` and `tenure salvage`: look at a damaged log, and save what is whole of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from tenure.cli.inspect import open_disk, replay
from tenure.cli.main import OK, PROBLEM
from tenure.cli.screen import Payload, Shown, count, escape, size, table
from tenure.core.events import KINDS, TopicCarried, TopicPut, decode
from tenure.core.invariants import invariants
from tenure.core.snapshot import load_topic
from tenure.errors import Conflict, TenureError
from tenure.log.disk import Disk, PosixDisk
from tenure.log.salvage import salvage
from tenure.log.survey import Problem, Report, Survey

__all__ = ["salvaged", "show", "verified"]

_NAMING = frozenset(kind for kind, event in KINDS.items() if event in (TopicPut, TopicCarried))
_LOOKS_MAX = 3
_PROBLEMS_SHOWN = 50


def verified(directory: Path) -> Shown:
    """Every problem of a log.

    A broker may be writing it meanwhile, so a problem counts only when two looks in a row find the same ones.
    """
    disk = open_disk(directory)
    report, names = _survey(disk)
    for _ in range(_LOOKS_MAX):
        if not report.problems:
            break
        before, (report, names) = report, _survey(disk)
        if report.problems == before.problems:
            break
    return _payload(directory, report, names)


def salvaged(directory: Path, into: Path) -> Shown:
    """Save what is whole; the new directory is then read back as a broker would, and its state checked."""
    source = open_disk(directory)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Conflict(f"{into} is not empty: name a new directory to salvage into", path=str(into))
    with suppress(OSError):  # what cannot even be locked, on a read-only mount, no broker can be writing
        source.lock()
    try:
        _, names = _survey(source)
        report = salvage(source, into)
    finally:
        source.unlock()
    payload, code = _payload(directory, report, names)
    payload["into"] = str(into)
    payload["opens"], payload["opens_error"] = True, None
    try:
        invariants(replay(PosixDisk(into, create=False)).state)
    except (TenureError, AssertionError, LookupError) as error:
        about = error.message if isinstance(error, TenureError) else f"{type(error).__name__}: {error}"
        payload["opens"], payload["opens_error"], code = False, about, PROBLEM
    return payload, code


def _survey(disk: Disk) -> tuple[Report, dict[int, str]]:
    """Go through a log; also learn the names of its topics, because a problem knows only their numbers."""
    survey = Survey(disk)
    names: dict[int, str] = {}
    for frames in survey.batches():
        for kind, topic, _, body in frames:
            if kind in _NAMING:
                event = decode(kind, body)
                names[topic] = event.name if isinstance(event, TopicPut) else _carried_name(event)
    return survey.report(), names


def _carried_name(event: object) -> str:
    assert isinstance(event, TopicCarried)
    return load_topic(event.snapshot).name


def _payload(directory: Path, report: Report, names: dict[int, str]) -> Shown:
    def describe(problem: Problem) -> dict[str, Any]:
        about = problem._asdict()
        about["topics"] = [names.get(topic, f"#{topic}") for topic in problem.topics]
        about["lost_batches"] = max(0, problem.last_batch - problem.first_batch + 1)
        return about

    payload: Payload = {
        "directory": str(directory),
        "ok": not report.problems,
        "segments": report.segments,
        "batches": report.batches,
        "frames": report.frames,
        "epoch": report.epoch,
        "problems": [describe(problem) for problem in report.problems],
        "torn": describe(report.torn) if report.torn is not None else None,
    }
    return payload, PROBLEM if report.problems else OK


def show(console: Console, payload: Payload) -> None:
    """The same for people."""
    problems, torn = payload["problems"], payload["torn"]
    whole = f"{count(payload['batches'], 'batch', 'batches')} in {count(payload['segments'], 'segment')}"
    if "into" in payload:
        console.print(f"saved {whole} into {escape(payload['into'])}; {escape(payload['directory'])} was not changed")
    else:
        console.print(f"{whole} are whole")
    if torn is not None:
        where = f"{torn['file']} bytes {torn['offset']}..{torn['end']}"
        console.print(f"a torn tail of {size(torn['end'] - torn['offset'])} ({where}): nobody was told it is durable")
    if not problems:
        console.print("no problems found")
    else:
        lost = sum(problem["lost_batches"] for problem in problems)
        console.print(f"{count(len(problems), 'problem')}, {count(lost, 'batch', 'batches')} lost:")
        table(console, ("file", "bytes", "batches", "topics", "why"), map(_row, problems[:_PROBLEMS_SHOWN]))
        if len(problems) > _PROBLEMS_SHOWN:
            console.print(f"and {len(problems) - _PROBLEMS_SHOWN:,} more problems; --json lists them all")
        if "into" not in payload:
            console.print(f"next: stop the broker, then tenure salvage {escape(payload['directory'])} NEW_DIRECTORY")
    if "into" in payload:
        if payload["opens"]:
            console.print(f"the new directory reads back whole: open it in place of {escape(payload['directory'])}")
        else:
            why = escape(payload["opens_error"])
            console.print(f"but what was saved does not fold to a sound state without what was given up: {why}")
            console.print(
                "do not open it for work: restore the damaged segment from a copy, or ask the producers again"
            )


def _row(problem: dict[str, Any]) -> tuple[str, str, str, str, str]:
    first, last = problem["first_batch"], problem["last_batch"]
    batches = "none" if last < first else str(first) if first == last else f"{first}..{last}"
    where = f"{problem['offset']}..{problem['end']}"
    return problem["file"], where, batches, ", ".join(problem["topics"]), problem["why"]
