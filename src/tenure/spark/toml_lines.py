"""A TOML file with the line of each key, so that an error can name it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tenure.errors import Invalid

__all__ = ["KeyPath", "Located", "Problem", "problems_error", "read_text", "read_toml"]

KeyPath = tuple[str | int, ...]
"""The path of a value: ``("step", 0, "sql")`` is the key sql of the first table of ``[[step]]``."""

FILE_BYTES_MAX: Final = 1 << 20
"""The largest file that is read as a configuration."""
_SYNTAX_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_TOKEN: Final = re.compile(
    r"""
      (?P<skip>[ \t\r]+|\#[^\n]*)
    | (?P<newline>\n)
    | (?P<text>\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    | (?P<mark>\[\[|\]\]|[\[\]{}=,.])
    | (?P<bare>[^\s\#"'\[\]{}=,.]+)
    """,
    re.VERBOSE | re.DOTALL,
)


class Problem(NamedTuple):
    """One mistake, and its line; none where the whole file is meant."""

    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class Located(NamedTuple):
    """The values of a TOML file, and their lines."""

    file: Path
    values: dict[str, Any]
    lines: dict[KeyPath, int]

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return a mistake at a key, or at the nearest one around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return Problem(self.file, self.lines.get(path), message)


def problems_error(problems: list[Problem], *, code: str) -> Invalid:
    """Return all mistakes as one error, a line each; ``detail`` holds them for a program."""
    details = [{"file": str(one.file), "line": one.line, "message": one.message} for one in problems]
    return Invalid("\n".join(map(str, problems)), code=code, problems=details)


def read_toml(file: Path, *, code: str) -> Located:
    """Return the file's values and lines. Raises Invalid with that code where it cannot be read or is not TOML."""
    text = read_text(file, code=code)
    try:
        return Located(file, tomllib.loads(text), _lines_of(text))
    except tomllib.TOMLDecodeError as error:
        match = _SYNTAX_LINE.search(str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        message = _SYNTAX_LINE.sub("", str(error)).strip()
        raise problems_error([Problem(file, line, f"is not TOML: {message}")], code=code) from None


def read_text(file: Path, *, code: str) -> str:
    """Read a small text file. Raises Invalid with that code where it is unreadable, too large or not UTF-8."""
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise problems_error([Problem(file, None, f"cannot be read: {error.strerror}")], code=code) from None
    if len(content) > FILE_BYTES_MAX:
        raise problems_error([Problem(file, None, f"larger than {FILE_BYTES_MAX:,} bytes")], code=code)
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise problems_error([Problem(file, line, "is not UTF-8")], code=code) from None


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    line, place = 1, 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None, "tomllib has read the same text"
        place = match.end()
        if match.lastgroup != "skip":
            yield _Token(str(match.lastgroup), match[0], line)
        line += match[0].count("\n")


def _lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line of every table and key, of text that is known to be TOML."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    tokens = list(_tokens(text))
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token.kind == "newline":
            place += 1
        elif token.text in ("[", "[["):
            names, place = _key(tokens, place + 1)
            table = (*_inside(names[:-1], counts), names[-1])
            if token.text == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, token.line)
                table = (*table, counts[table])
            lines.setdefault(table, token.line)
            place += 1
        else:
            names, place = _key(tokens, place)
            place = _value(tokens, place + 1, (*table, *names), lines, token.line)
    return lines


def _inside(names: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """Return a table's path, with the index of the last element where it goes through an array of tables."""
    path: KeyPath = ()
    for name in names:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    return path


def _key(tokens: list[_Token], place: int) -> tuple[KeyPath, int]:
    """Parse a key with its dots, and return the place after it."""
    names: list[str] = []
    while tokens[place].kind in ("bare", "text") or tokens[place].text == ".":
        token = tokens[place]
        if token.kind == "text":
            names.append(str(next(iter(tomllib.loads(f"{token.text} = 0")))))
        elif token.text != ".":
            names.append(token.text)
        place += 1
    return tuple(names), place


def _value(tokens: list[_Token], place: int, path: KeyPath, lines: dict[KeyPath, int], line: int) -> int:
    """Note where a value and everything inside of it stands; return the place after it."""
    lines.setdefault(path, line)
    opening = tokens[place].text
    if opening == "{":
        place += 1
        while tokens[place].text != "}":
            if tokens[place].kind == "newline" or tokens[place].text == ",":
                place += 1
                continue
            at = tokens[place].line
            names, place = _key(tokens, place)
            place = _value(tokens, place + 1, (*path, *names), lines, at)
        return place + 1
    if opening in ("[", "[["):
        return _array(tokens, place, path, lines)
    while place < len(tokens) and tokens[place].kind != "newline" and tokens[place].text not in (",", "]", "}", "]]"):
        place += 1
    return place


def _array(tokens: list[_Token], place: int, path: KeyPath, lines: dict[KeyPath, int]) -> int:
    """Note the elements of an array. Two adjacent brackets are one token, so it is split where they open values."""
    _split(tokens, place)
    place += 1
    index = 0
    while _split(tokens, place).text != "]":
        if tokens[place].kind == "newline" or tokens[place].text == ",":
            place += 1
            continue
        place = _value(tokens, place, (*path, index), lines, tokens[place].line)
        index += 1
    return place + 1


def _split(tokens: list[_Token], place: int) -> _Token:
    token = tokens[place]
    if token.text in ("[[", "]]"):
        half = token._replace(text=token.text[0])
        tokens[place : place + 1] = [half, half]
    return tokens[place]
