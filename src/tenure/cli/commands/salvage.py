"""`tenure verify` and `tenure salvage`: find the damage of a log, and save its intact records."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from tenure.broker.salvage.rebuild import rebuild
from tenure.cli.commands.directory import open_disk, replay
from tenure.cli.main import OK, PROBLEM
from tenure.cli.screen import Payload, Shown, escape, table
from tenure.cli.words import count, format_path, size
from tenure.core.events import KINDS, BaseBegun, TopicCarried, TopicPut, decode
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import load_topic
from tenure.errors import Conflict, TenureError
from tenure.log.damage.defects import Problem, Report
from tenure.log.damage.survey import Survey
from tenure.log.disk import Disk, PosixDisk

__all__ = ["salvage", "show", "verify"]

_NAMING = frozenset(kind for kind, event in KINDS.items() if event in (TopicPut, TopicCarried, BaseBegun))
_LOOKS_MAX = 3
_LINES_MAX = 50
_RANGES_MAX = 5


def verify(directory: Path) -> Shown:
    """Return every problem of a log.

    A broker may write it at the same time, so problems count only when two reads in a row find the same ones.
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


def salvage(directory: Path, into: Path) -> Shown:
    """Save intact records; the new directory is then read back as by a broker, and its state checked."""
    source = open_disk(directory)
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise Conflict(f"{into} is not empty: name a new directory to salvage into", path=str(into))
    with suppress(OSError):  # on a read-only mount it cannot be locked, and no broker can write it
        source.lock()
    try:
        rebuilt = rebuild(source, into)
    finally:
        source.unlock()
    payload, _ = _payload(directory, rebuilt.found, {topic.id: topic.topic for topic in rebuilt.topics})
    payload["ok"] = rebuilt.complete
    payload["into"] = format_path(into)
    payload["topics"] = msgspec.to_builtins(rebuilt.topics)
    payload["routers"] = msgspec.to_builtins(rebuilt.routers)
    payload["given_up"] = list(rebuilt.given_up)
    payload["opens"], payload["opens_error"] = _check_opens(into)
    return payload, OK if rebuilt.complete and payload["opens"] else PROBLEM


def _check_opens(directory: Path) -> tuple[bool, str | None]:
    """Return whether a broker can open a directory, and else why not."""
    try:
        invariants(replay(PosixDisk(directory, create=False)).state)
    except TenureError as error:
        return False, error.message
    except (AssertionError, LookupError) as error:
        return False, f"{type(error).__name__}: {error}"
    return True, None


def _survey(disk: Disk) -> tuple[Report, dict[int, str]]:
    """Survey a log; also collect the names of its topics, because a problem contains only their ids."""
    survey = Survey(disk)
    names: dict[int, str] = {}
    for frames, _ in survey.batches():
        for kind, topic, _, body in frames:
            if kind in _NAMING:
                event = decode(kind, body)
                names[topic] = event.name if isinstance(event, TopicPut | BaseBegun) else _carried_name(event)
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
        "directory": format_path(directory),
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
    """Print the problems, and what was saved, as text."""
    problems, torn = payload["problems"], payload["torn"]
    whole = f"{count(payload['batches'], 'batch', 'batches')} in {count(payload['segments'], 'segment')}"
    console.print(f"{whole} are whole")
    if torn is not None:
        where = f"{torn['file']} bytes {torn['offset']}..{torn['end']}"
        console.print(f"a torn tail of {size(torn['end'] - torn['offset'])} ({where}): nobody was told it is durable")
    if not problems:
        console.print("no problems found")
    else:
        broken = sum(problem["lost_batches"] for problem in problems)
        console.print(f"{count(len(problems), 'problem')}, {count(broken, 'batch', 'batches')} broken:")
        table(console, ("file", "bytes", "batches", "topics", "why"), map(_row, problems[:_LINES_MAX]))
        _print_rest(console, len(problems), "problems")
    if "into" in payload:
        _show_saved(console, payload)
    elif problems:
        console.print(f"next: stop the broker, then tenure salvage {escape(payload['directory'])} NEW_DIRECTORY")


def _show_saved(console: Console, payload: Payload) -> None:
    """Print what a salvage kept, what it gave up, and the next step."""
    topics = payload["topics"]
    records = count(sum(topic["records"] for topic in topics), "record")
    old, new = escape(payload["directory"]), escape(payload["into"])
    console.print(f"saved {records} in {count(len(topics), 'topic')} into {new}; {old} was not changed")
    rows = ((each["topic"], each["type"], each["records"], _seqs(each["lost"])) for each in topics[:_LINES_MAX])
    table(console, ("topic", "type", "records#", "lost seqs"), rows)
    _print_rest(console, len(topics), "topics")
    for topic in topics[:_LINES_MAX]:
        if not topic["declared"]:
            console.print(f"{topic['topic']}: its name and config are lost; put a config, or redrive it elsewhere")
    for router in payload["routers"][:_LINES_MAX]:
        if router["passed_over"]:
            passed = _seqs(router["passed_over"])
            console.print(f"router {escape(router['router'])} has not copied {passed} of {router['source']}")
    console.print("not kept:")
    for line in payload["given_up"]:
        console.print(f"- {escape(line)}")
    if payload["opens"]:
        console.print(f"the new directory reads back whole: open it in place of {old}")
    else:
        console.print(
            f"but it does not read back: {escape(payload['opens_error'])}. Keep {old}; this is a bug in tenure"
        )


def _print_rest(console: Console, found: int, what: str) -> None:
    if found > _LINES_MAX:
        console.print(f"and {found - _LINES_MAX:,} more {what}; --json lists them all")


def _seqs(ranges: list[list[int]]) -> str:
    shown = [str(first) if first == last else f"{first}..{last}" for first, last in ranges[:_RANGES_MAX]]
    return ", ".join(shown) + (f" and {len(ranges) - _RANGES_MAX:,} more ranges" if len(ranges) > _RANGES_MAX else "")


def _row(problem: dict[str, Any]) -> tuple[str, str, str, str, str]:
    first, last = problem["first_batch"], problem["last_batch"]
    batches = "none" if last < first else str(first) if first == last else f"{first}..{last}"
    where = f"{problem['offset']}..{problem['end']}"
    return problem["file"], where, batches, ", ".join(problem["topics"]), problem["why"]
