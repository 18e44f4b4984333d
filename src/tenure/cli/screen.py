"""What commands print, and how: a story or a table for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.main import PROBLEM, USAGE
from tenure.errors import Corrupt, TenureError

__all__ = ["Payload", "Shown", "answer", "console_for", "count", "escape", "size", "table"]

Payload = dict[str, Any]
Shown = tuple[Payload, int]
"""What a command found, ready for JSON, and its exit code."""

_PLAIN_WIDTH = 110


def console_for(stderr: bool = False) -> Console:
    """A console that is plain text of a fixed width where nobody looks at it through a terminal."""
    console = Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, emoji=False, width=_PLAIN_WIDTH)


def table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under heads; a head that ends in ``#`` is a column of numbers."""
    shown = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.MARKDOWN, header_style="bold")
    for head in heads:
        shown.add_column(head.rstrip("#"), justify="right" if head.endswith("#") else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(escape(str(cell)) for cell in row))
    console.print(shown)


def size(count: int) -> str:
    """A number of bytes as people read it."""
    if count < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB"):
        count_in = count / 1024 ** (("KiB", "MiB", "GiB").index(unit) + 1)
        if count_in < 1024 or unit == "GiB":
            return f"{count_in:.1f} {unit}"
    raise AssertionError


def count(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def answer(find: Callable[[], Shown], show: Callable[[Console, Payload], None], *, as_json: bool) -> int:
    """Run a command and print what it found, or the one line about what stood in its way; returns the exit code."""
    try:
        payload, code = find()
    except (TenureError, OSError) as error:
        return _refuse(error, as_json=as_json)
    if as_json:
        print(json.dumps(payload, indent=2))
    else:
        show(console_for(), payload)
    return code


def _refuse(error: TenureError | OSError, *, as_json: bool) -> int:
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, TenureError):
        code, message, detail = error.code, error.message, error.detail
    else:
        where = f"{error.filename}: " if error.filename else ""
        code, message, detail = "unreadable", f"{where}{error.strerror or error}", {}
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "detail": detail}}, indent=2, default=str))
    else:
        print(f"tenure: {' '.join(message.split())}", file=sys.stderr)
    return PROBLEM if isinstance(error, Corrupt) else USAGE
