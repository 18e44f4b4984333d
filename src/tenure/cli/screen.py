"""Print the results of commands: text and tables for people, JSON for programs.

JSON is written as UTF-8 whatever the terminal's encoding, and contains a job's ``data`` as it was put, byte for byte
except for the whitespace around it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenure.cli.main import PROBLEM, USAGE
from tenure.cli.words import clean
from tenure.errors import Corrupt, TenureError

__all__ = ["Payload", "Shown", "answer", "console_for", "document", "escape", "line", "note", "refuse", "table"]

Payload = dict[str, Any]
Shown = tuple[Payload, int]
"""The result of a command, ready for JSON, and its exit code."""

_PLAIN_WIDTH = 110
# The narrowest readable column of text; numbers are never broken.
_TEXT_WIDTH_MIN = 12
_BETWEEN = 3


def console_for(stderr: bool = False) -> Console:
    """Return a console, which without a terminal prints plain text of a fixed width."""
    console = Console(stderr=stderr, highlight=False, emoji=False, soft_wrap=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, emoji=False, width=_PLAIN_WIDTH)


def table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under heads; a head that ends in ``#`` is a column of numbers. Without a terminal it is Markdown, and
    a row is one line, however long. On a terminal that is too narrow for the columns, each value gets a line.
    """
    names = [head.rstrip("#") for head in heads]
    right = [head.endswith("#") for head in heads]
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if not console.is_terminal:
        _plain_table(console, names, right, cells)
        return
    if _width_needed(names, right, cells) > console.width:
        _value_a_line(console, names, cells)
        return
    shown = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name, number in zip(names, right, strict=True):
        shown.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in cells:
        shown.add_row(*map(escape, row))
    console.print(shown)


def _width_needed(names: list[str], right: list[bool], rows: list[list[str]]) -> int:
    """Return how many cells a table needs at least: numbers whole, texts folded."""
    total = 0
    for name, number, column in zip(names, right, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        widest = max(map(cell_len, column), default=0)
        total += _BETWEEN + max(cell_len(name), widest if number else min(widest, _TEXT_WIDTH_MIN))
    return total


def _value_a_line(console: Console, names: list[str], rows: list[list[str]]) -> None:
    """Print each row as a block of lines, without its empty cells."""
    room = max(map(cell_len, names))
    for row in rows:
        lines = [f"{name:{room}}  {cell}" for name, cell in zip(names, row, strict=True) if cell]
        console.print("\n" + "\n".join(lines), markup=False, overflow="fold")


def _plain_table(console: Console, names: list[str], right: list[bool], rows: list[list[str]]) -> None:
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]

    def spell(row: list[str]) -> str:
        room = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [pad + cell if number else cell + pad for cell, pad, number in zip(row, room, right, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = [f"{'-' * (width + 1)}{':' if number else '-'}" for width, number in zip(widths, right, strict=True)]
    lines = ["", spell(names), f"|{'|'.join(rule)}|", *map(spell, rows)]
    console.out("\n".join(lines), highlight=False)


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
    """Print one line to standard error; ignored where that cannot be written."""
    with suppress(OSError):
        print(f"tenure: {clean(' '.join(message.split()))}", file=sys.stderr, flush=True)


def answer(find: Callable[[], Shown], show: Callable[[Console, Payload], None], *, as_json: bool) -> int:
    """Run a command on a directory and print its result, or its error in one line; returns the exit code."""
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
    """Print an error: one line, or a JSON document in place of the result. Returns the exit code."""
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
