"""Parse a pipeline file and report every mistake in it, before Spark is started."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from tenure.errors import Invalid
from tenure.spark.decode.schema import read_schema
from tenure.spark.pipeline.file.functions import load_function
from tenure.spark.pipeline.file.queries import check_query, query_of
from tenure.spark.pipeline.file.sections import LISTS, SECTIONS, Decode, Head, Pipeline, Schedule, SinkTable, Source
from tenure.spark.pipeline.file.sink import check_connector, check_sink, on_nul_of
from tenure.spark.pipeline.file.source import check_source
from tenure.spark.toml_lines import KeyPath, Located, Problem, problems_error, read_toml

__all__ = ["CODE", "read_pipeline", "validate_pipeline"]

CODE: Final = "bad_pipeline"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_NEEDED: Final = ("pipeline", "source", "sink")
_EMPTY: Final[dict[str, dict[str, Any]]] = {"decode": {}, "schedule": {}}
_KIND: Final = re.compile(r"`([^`]*)`")
_KINDS: Final = {
    "str": "a string",
    "str | null": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""Names of types: msgspec's, and TOML's."""
_AT_LEAST_ONE: Final = ("entries_max", "bytes_max", "batches_max", "every_ms")


def read_pipeline(file: Path) -> Pipeline:
    """Return the pipeline of a file. Raises Invalid (``bad_pipeline``) with every mistake, its file and line."""
    located = read_toml(file, code=CODE)
    problems: list[Problem] = list(_check_unknown(located))
    found = _sections(located, problems)
    bad = {
        name for name, section in found.items() if section is None or (isinstance(section, tuple) and None in section)
    }
    sound = {name: section for name, section in found.items() if name not in bad}
    # The checks never look at the stand-in for a bad section: one mistake must not be reported as three.
    pipeline = Pipeline(located=located, **(_STAND_INS | sound))
    for needs, check in _CHECKS:
        if bad.isdisjoint(needs):
            problems += check(pipeline)
    if problems:
        raise problems_error(_sort(problems), code=CODE)
    return pipeline


def validate_pipeline(file: Path) -> Pipeline:
    """Return the pipeline of a file, if this machine could also run it. Raises Invalid (``bad_pipeline``).

    Its sink must have what it needs for the pyspark that is installed.
    """
    pipeline = read_pipeline(file)
    if problems := list(check_connector(pipeline)):
        raise problems_error(problems, code=CODE)
    return pipeline


def _sections(located: Located, problems: list[Problem]) -> dict[str, Any]:
    """Return the sections by name; None, or None within a list, where one has a mistake or is missing."""
    found: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        values = located.values.get(name, _EMPTY.get(name))
        if values is None and name in _NEEDED:
            problems.append(located.problem((), f"there is no [{name}]"))
            found[name] = None
        elif values is not None and not isinstance(values, dict):
            problems.append(located.problem((name,), f"{name} is a table: write [{name}]"))
            found[name] = None
        elif values is not None:
            found[name] = _section(located, (name,), kind, values, problems)
    for name, kind in LISTS.items():
        found[name] = tuple(_list(located, name, kind, problems))
    return found


def _sort(problems: list[Problem]) -> list[Problem]:
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda one: (str(one.file), one.line or 0))


def _check_unknown(located: Located) -> Iterator[Problem]:
    known = [*SECTIONS, *LISTS]
    for name in located.values:
        if name not in known:
            yield located.problem((name,), f"[{name}] is unknown{_suggest(name, known)}")


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f": {close[0]} is meant?" if close else f"; there are {', '.join(known)}"


def _list(located: Located, name: str, kind: type[msgspec.Struct], problems: list[Problem]) -> Iterator[Any]:
    values = located.values.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        problems.append(located.problem((name,), f"{name} may stand there several times: write [[{name}]]"))
        yield None
        return
    for index, value in enumerate(values):
        yield _section(located, (name, index), kind, value, problems)


def _section(
    located: Located, path: KeyPath, kind: type[msgspec.Struct], values: dict[str, Any], problems: list[Problem]
) -> msgspec.Struct | None:
    """Return a section, checked field by field so that each mistake is reported; None after one."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    before = len(problems)
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            problems.append(located.problem((*path, name), f"{name} is unknown here{_suggest(name, list(fields))}"))
            continue
        try:
            found[name] = msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError as error:
            problems.append(
                located.problem((*path, name), f"{name} must be {_expected_type(error, fields[name].type, value)}")
            )
        if name in _AT_LEAST_ONE and isinstance(value, int) and value < 1:
            problems.append(located.problem((*path, name), f"{name} must be at least 1, not {value}"))
    missing = [name for name, field in fields.items() if field.required and name not in values]
    problems += [located.problem(path, f"[{path[0]}] needs {name}") for name in missing]
    return kind(**found) if len(problems) == before else None


def _expected_type(error: msgspec.ValidationError, kind: Any, value: Any) -> str:
    """Return what a value should have been, in TOML's words."""
    choices = sorted(choice for choice in get_args(kind) if isinstance(choice, str))
    if choices:
        return f"one of {', '.join(choices)}, not {value!r}"
    expected = _KIND.sub(lambda found: _KINDS.get(found[1], found[1]), str(error).partition(" - at $")[0])
    return expected.removeprefix("Expected ").replace(", got ", ", not ")


def _check_names(pipeline: Pipeline) -> Iterator[Problem]:
    for path, name in ((("pipeline", "name"), pipeline.name), (("source", "group"), pipeline.source.group)):
        if not _NAME.fullmatch(name):
            yield pipeline.located.problem(path, f"{path[-1]}: 1 to 100 letters, digits, '.', '_' or '-'")


def _check_decode(pipeline: Pipeline) -> Iterator[Problem]:
    at, decode = pipeline.located.problem, pipeline.decode
    if decode.format == "json" and decode.schema is None:
        yield at(("decode",), 'JSON is decoded by a schema: [decode] needs schema, or format = "text" or "binary"')
    if decode.format != "json" and decode.schema is not None:
        yield at(("decode", "schema"), f"a schema is for JSON, and format is {decode.format}")
    if decode.malformed == "quarantine" and pipeline.quarantine is None:
        yield at(("decode", "malformed"), 'malformed = "quarantine" needs a [quarantine] with a path')
    if decode.schema is not None and find_spec("pyspark") is not None:
        try:
            read_schema(pipeline.beside(decode.schema))
        except Invalid as error:
            problems = [Problem(Path(one["file"]), one["line"], one["message"]) for one in error.detail["problems"]]
            if any(one.message.startswith("cannot be read") for one in problems):
                problems = [at(("decode", "schema"), f"schema: {problems[0].file} {problems[0].message}")]
            yield from problems


def _check_steps(pipeline: Pipeline) -> Iterator[Problem]:
    for index in range(len(pipeline.step)):
        yield from _check_step(pipeline, index)


def _check_step(pipeline: Pipeline, index: int) -> Iterator[Problem]:
    at, step, path = pipeline.located.problem, pipeline.step[index], ("step", index)
    given = [name for name in ("sql", "file", "python") if getattr(step, name) is not None]
    if len(given) != 1:
        yield at(path, f"a step has one of sql, file and python, not {' and '.join(given) or 'none'}")
    elif step.python is not None:
        try:
            load_function(step.python, beside=pipeline.file.parent)
        except Invalid as error:
            yield at((*path, "python"), f"python: {error.message}")
    else:
        try:
            yield from (at((*path, given[0]), f"{given[0]}: {said}") for said in check_query(query_of(pipeline, step)))
        except Invalid as error:
            yield at((*path, "file"), f"file: {error.message}")


def _check_rows(pipeline: Pipeline) -> Iterator[Problem]:
    """Check deduplication and expectations."""
    at = pipeline.located.problem
    if pipeline.deduplicate is not None and not pipeline.deduplicate.keys:
        yield at(("deduplicate", "keys"), "keys: name at least one column")
    names: set[str] = set()
    for index, expect in enumerate(pipeline.expect):
        path = ("expect", index)
        if not _NAME.fullmatch(expect.name):
            yield at((*path, "name"), "name: 1 to 100 letters, digits, '.', '_' or '-'")
        if expect.name in names or expect.name == "malformed":
            yield at((*path, "name"), f"name: {expect.name} is taken: each expectation has a name of its own")
        names.add(expect.name)
        yield from (at((*path, "that"), f"that: {said}") for said in check_query(expect.that, over_input=False))
        if expect.otherwise == "quarantine" and pipeline.quarantine is None:
            yield at((*path, "otherwise"), 'otherwise = "quarantine" needs a [quarantine] with a path')
    if pipeline.expectations is not None and not pipeline.expect:
        yield at(("expectations",), "results are kept of no expectation: there is no [[expect]]")
    used = pipeline.decode.malformed == "quarantine" or any(one.otherwise == "quarantine" for one in pipeline.expect)
    used = used or on_nul_of(pipeline) == "quarantine"
    if pipeline.quarantine is not None and not used:
        yield at(("quarantine",), "nothing is sent to the quarantine: neither malformed entries nor an [[expect]]")


def _check_places(pipeline: Pipeline) -> Iterator[Problem]:
    """Check for tables that would lie on top of each other, or where a file is."""
    for name in ("sink", "quarantine", "expectations"):
        path = getattr(getattr(pipeline, name), "path", None)
        if path is not None and "://" not in path and pipeline.beside(path).is_file():
            yield pipeline.located.problem((name, "path"), f"path: {path} is a file, and a table is a directory")
    taken = {} if pipeline.sink.path is None else {pipeline.sink.path.rstrip("/"): "sink"}
    for name, section in (("quarantine", pipeline.quarantine), ("expectations", pipeline.expectations)):
        if section is None:
            continue
        other = taken.setdefault(section.path.rstrip("/"), name)
        if other != name:
            yield pipeline.located.problem((name, "path"), f"path: {section.path} is the place of [{other}] already")


def _check_schedule(pipeline: Pipeline) -> Iterator[Problem]:
    at, schedule = pipeline.located.problem, pipeline.schedule
    if pipeline.source.topic is not None:
        if schedule.checkpoint is None:
            yield at(("source", "topic"), "a topic needs a checkpoint in [schedule]: a directory that stays")
        return
    if schedule.run == "streaming" and schedule.checkpoint is None:
        yield at(("schedule",), 'run = "streaming" needs a checkpoint: a directory that stays')
    if schedule.run != "streaming" and schedule.checkpoint is not None:
        yield at(("schedule", "checkpoint"), f"a checkpoint is for streaming, and run is {schedule.run}")


_STAND_INS: Final[dict[str, Any]] = {
    "pipeline": Head(name="unnamed"),
    "source": Source(buffer="buffer"),
    "sink": SinkTable(kind="parquet", path="table"),
    "decode": Decode(),
    "schedule": Schedule(),
}
_CHECKS: Final[tuple[tuple[tuple[str, ...], Callable[[Pipeline], Iterator[Problem]]], ...]] = (
    (("pipeline", "source"), _check_names),
    (("source",), check_source),
    (("decode", "quarantine"), _check_decode),
    (("step",), _check_steps),
    (("decode", "deduplicate", "expect", "expectations", "quarantine"), _check_rows),
    (("sink", "expectations", "quarantine"), _check_places),
    (("pipeline", "sink"), check_sink),
    (("source", "schedule"), _check_schedule),
)
"""The checks, each with the sections it looks at."""
