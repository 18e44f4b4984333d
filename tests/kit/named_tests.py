"""The tests that a page of the documentation names, by file and function."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["missing", "named"]

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def named(text: str) -> list[tuple[str, str]]:
    """Return each test that the text names, as a file and a function."""
    return _NAMED.findall(text)


def missing(text: str) -> list[str]:
    """Return the tests that the text names and that are not there."""
    return [f"{path}::{test}" for path, test in named(text) if not _defines(ROOT / path, test)]


def _defines(path: Path, test: str) -> bool:
    pattern = rf"^\s*(?:async )?(?:def|class) {test}\b|^{test}\b"
    return path.is_file() and re.search(pattern, _text(path), re.MULTILINE) is not None


@cache
def _text(path: Path) -> str:
    return path.read_text()
