"""What commands print, and how: a story or a table for people, JSON for programs.

JSON goes out as UTF-8 whatever the terminal speaks, and carries a job's ``data`` as it was put, byte for byte but for
the whitespace around it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.main import PROBLEM, USAGE
from tenure.cli.words import clean
from tenure.errors import Corrupt, TenureError

__all__ = ["Payload", "Shown", "answer", "console_for", "document", "escape", "line", "note", "refuse", "table"]

Payload = dict[str, Any]
Shown = tuple[Payload, int]
"""What a command found, ready for JSON, and its exit code."""

_PLAIN_WIDTH = 110
_ROW_WIDTH = 1 << 16


def console_for(stderr: bool = False) -> Console:
    """A console that is plain text of a fixed width where nobody looks at it through a terminal."""
    console = Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, emoji=False, width=_PLAIN_WIDTH)


def table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under heads; a head that ends in ``#`` is a column of numbers. Without a terminal, a row is one line,
    however long it gets.
    """
    shown = Table(box=box.SIMPLE_HEAD if console.is_terminal else box.MARKDOWN, header_style="bold")
    for head in heads:
        shown.add_column(head.rstrip("#"), justify="right" if head.endswith("#") else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(escape(clean(str(cell))) for cell in row))
    console.print(shown, width=None if console.is_terminal else _ROW_WIDTH, crop=console.is_terminal)


def document(payload: object) -> None:
    """Print one JSON document, indented."""
    _emit(msgspec.json.format(msgspec.json.encode(payload), indent=2))


def line(payload: object) -> None:
    """Print one JSON value on a line of its own, at once."""
    _emit(msgspec.json.format(msgspec.json.encode(payload), indent=-1))


def _emit(text: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.buffer.flush()


def note(message: str) -> None:
    """One line for people, beside the output."""
    print(f"tenure: {clean(' '.join(message.split()))}", file=sys.stderr, flush=True)


def answer(find: Callable[[], Shown], show: Callable[[Console, Payload], None], *, as_json: bool) -> int:
    """Run a command on a directory and print what it found, or the one line about what stood in its way; returns the
    exit code.
    """
    try:
        payload, code = find()
    except (TenureError, OSError) as error:
        return refuse(error, PROBLEM if isinstance(error, Corrupt) else USAGE, as_json=as_json)
    if as_json:
        document(payload)
    else:
        show(console_for(), payload)
    return code


def refuse(error: TenureError | OSError, exit_code: int, *, as_json: bool) -> int:
    """Say what stood in the way: one line, or a JSON document in the place of the answer. Returns the exit code."""
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
        note(message)
    return exit_code
