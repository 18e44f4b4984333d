"""The reference is complete: every method and argument, setting, field, error, event and byte of a header."""

from __future__ import annotations

import inspect
import json
import re

import msgspec

from tenure import Broker, Settings, errors
from tenure.contract.config import TopicConfig
from tenure.core.events import KINDS
from tenure.export.rows import Exported
from tenure.log import frame, segment
from tests.kit.doc_blocks import ROOT
from tests.kit.named_tests import missing, named

REFERENCE = ROOT / "docs" / "reference"
# Arguments that mean the same everywhere.
EXPLAINED_ONCE = {"topic", "router", "node", "prefix", "limit", "cursor", "source", "dest"}


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The rows of all tables, cell by cell, without heads."""
    found = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in found]
    return [
        row
        for row, below in zip(cells, [*cells[1:], [""]], strict=True)
        if not row[0].startswith("--") and not below[0].startswith("--")
    ]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_setting_is_listed_with_its_default():
    listed = {code(row[0])[0]: row[1] for row in rows(page("settings"))}
    assert listed == {field.name: str(field.default) for field in msgspec.structs.fields(Settings)}


def test_every_field_of_a_topic_config_is_listed_with_its_default():
    listed = {code(row[0])[0]: code(row[1])[0] for row in rows(page("topic-config"))}
    assert listed == {field.name: json.dumps(field.default) for field in msgspec.structs.fields(TopicConfig)}


def test_every_event_is_listed_with_its_number_and_its_fields():
    listed = {int(row[0]): (code(row[1])[0], code(row[2])) for row in rows(page("on-disk-format")) if row[0].isdigit()}
    assert listed == {
        kind: (event.__name__, [field.name for field in msgspec.structs.fields(event)]) for kind, event in KINDS.items()
    }


def test_the_headers_on_disk_are_as_long_as_the_page_says():
    text = page("on-disk-format")
    widths = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "8 bytes": 8, "16 bytes": 16}
    head, header = (text.partition(f"## {title}\n")[2].partition("\n## ")[0] for title in ("Segment head", "Frame"))
    assert sum(widths[row[1]] for row in rows(head)) == segment.HEAD_BYTES == 64
    assert sum(widths[row[1]] for row in rows(header)) == frame.HEADER_BYTES == 36
    assert "first 64 bytes" in head
    assert "header of 36 bytes" in header
    assert (frame.KIND_SEAL, frame.KIND_DROPPED, frame.KIND_EPOCH, frame.KIND_FEATURES) == (1, 2, 3, 4)
    assert (frame.LAST, frame.FIRST) == (1, 2)


def test_every_error_is_listed_with_its_code():
    listed = {code(row[0])[0]: code(row[2])[0] for row in rows(page("errors"))}
    assert listed == {name: getattr(errors, name).default_code for name in errors.__all__}


def test_every_code_in_the_sources_is_listed():
    raised = set()
    for path in (ROOT / "src" / "tenure").rglob("*.py"):
        raised |= set(re.findall(r"""\bcode=(?:"(\w+)"| "(\w+)" if)""", path.read_text()))
    words = {word for pair in raised for word in pair if word}
    assert words - set(code(page("errors"))) == set()


def test_every_field_of_a_lifecycle_row_is_listed():
    listed = {code(row[0])[0] for row in rows(page("lifecycle-events")) if code(row[0])}
    kinds = {"produced", "claimed", "begun", "extended", "released", "returned", "expired", "lost"}
    kinds |= {"acked", "dead_lettered", "redriven"}
    assert listed == {field.name for field in msgspec.structs.fields(Exported)} | kinds | {"gap"}


def sections() -> dict[str, tuple[str, str]]:
    """The methods of the page: by name, the heading's arguments and the text beneath."""
    found = re.findall(
        r"^### `(?:Broker\.)?(\w+)(?:\(([^\n]*)\))?`\n(.*?)(?=^##|\Z)", page("broker"), re.MULTILINE | re.DOTALL
    )
    return {name: (arguments, text) for name, arguments, text in found}


def test_every_method_of_the_broker_is_described_with_its_arguments():
    methods = {name: value for name, value in inspect.getmembers(Broker) if not name.startswith("_")}
    described = sections()
    assert set(described) == set(methods)
    for name, method in methods.items():
        if isinstance(method, property):
            continue
        parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
        heading, text = described[name]
        assert heading == ", ".join(spelled(parameters)), name
        for parameter in parameters:
            assert parameter.name in EXPLAINED_ONCE or f"`{parameter.name}" in text, (name, parameter.name)


def spelled(parameters: list[inspect.Parameter]) -> list[str]:
    words, keyword_only = [], False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            words.append("*")
            keyword_only = True
        default = parameter.default
        shown = "" if default is inspect.Parameter.empty else "=" + repr(default).replace("'", '"')
        words.append(parameter.name + shown)
    return words


def test_every_promise_names_tests_that_exist():
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert len(named(text)) > 20
    assert missing(text) == []
