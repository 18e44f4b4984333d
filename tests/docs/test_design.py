"""The design notes name files, modules and folders that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.doc_blocks import ROOT, named

SOURCE = ROOT / "src" / "tenure"
NOTES = sorted((ROOT / "docs" / "design").glob("*.md"))
# A file by its name or the end of its path: `fold.py`, `core/fold/__init__.py`, `sse.js`.
_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|js|lua|css|html|toml|md))(?:::\w+)?`")
# A module or folder from its room on, or by its full name: `broker/engine`, `core/decide/`, `tenure.testing`.
_MODULE = re.compile(r"`(?:tenure[./])?([a-z_]+(?:/[a-z_0-9]+)+)/?`|`tenure\.([a-z_]+(?:\.[a-z_0-9]+)*)`")
FILES = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("*.*")]
FILES += [
    f"/{path.relative_to(ROOT)}" for top in ("src", "tests", "docs", "bench") for path in (ROOT / top).rglob("*.*")
]


def missing_files(text: str) -> list[str]:
    return [name for name in _FILE.findall(text) if not any(file.endswith(f"/{name}") for file in FILES)]


def missing_modules(text: str) -> list[str]:
    rooms = {path.stem for path in SOURCE.iterdir()}
    found = _MODULE.findall(text)
    paths = [below for below, _ in found if below.split("/")[0] in rooms]
    paths += [dotted.replace(".", "/") for _, dotted in found if dotted]
    return [path for path in paths if not is_module(SOURCE / path)]


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("note", NOTES, ids=named)
def test_a_design_note_names_only_files_and_modules_that_exist(note: Path):
    text = note.read_text()
    assert missing_files(text) == []
    assert missing_modules(text) == []


def test_a_file_and_a_module_that_are_gone_are_found():
    text = (
        "`core/state/topic.py`, `broker/engine`, `tenure.testing`; but `core/gone.py`, `broker/gone`, `tenure.gone.it`"
    )
    assert missing_files(text) == ["core/gone.py"]
    assert missing_modules(text) == ["broker/gone", "gone/it"]
