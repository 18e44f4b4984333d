"""A JSON document as entries: the elements of an array, or JSON values one after the other.

The document is read through a window, which grows to the largest element. Python's own scanner finds where an element
ends; its text becomes the entry, without the whitespace between its tokens, so every number keeps its digits.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec

from tenure.cli.buffer.importing.part import ENTRY_BYTES_MAX, bad_input, too_large
from tenure.cli.buffer.importing.stream import Stream

__all__ = ["json_values"]

_WINDOW_BYTES: Final = 1 << 18
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_TOKEN_CHARS: Final = 16
"""An error so near the end of the window may be of a token that goes on behind it."""


def json_values(stream: Stream, name: str) -> Iterator[bytes]:
    """Yield the elements of the document's array; where it is none, its values.

    Raises Invalid (``bad_input``) with the line: for what is not JSON, an end within the array, anything behind it, and
    an element that is too large.
    """
    window = _Window(stream, name)
    if window.next_char() != "[":
        while window.next_char():
            yield window.value()
        return
    window.skip()
    if window.next_char() == "]":
        window.skip()
    else:
        while True:
            yield window.value()
            if (char := window.next_char()) not in (",", "]"):
                window.fail(
                    "the array ends without its ]: is the file cut short?" if not char else "a comma is missing"
                )
            window.skip()
            if char == "]":
                break
    if window.next_char():
        window.fail("more follows the array; for an entry per line pass --format lines")


class _Window:
    """The part of the document that is in memory, and the place in it."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._scan = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).raw_decode
        self._text = ""
        self._at = 0
        self._line = 1
        """The line in which the window begins."""
        self._at_end = False

    def next_char(self) -> str:
        """Move past whitespace and return the character there; empty at the end of the document."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._at_end:
                return ""
            self._grow()

    def skip(self) -> None:
        """Move past one character."""
        self._at += 1

    def value(self) -> bytes:
        """Return the JSON value that begins here, and move past it."""
        if not self.next_char():
            self.fail("the array ends without its ]: is the file cut short?")
        while True:
            end = self._end_of_value()
            if end is not None:
                break
            if len(self._text) - self._at > ENTRY_BYTES_MAX:
                raise too_large(self._where(self._at))
            self._grow()
        text = self._text[self._at : end].encode()
        if len(text) > ENTRY_BYTES_MAX:
            raise too_large(self._where(self._at))
        self._at = end
        try:
            return msgspec.json.format(text, indent=-1)
        except msgspec.DecodeError:  # JSON, but with half of a surrogate pair
            return text

    def _end_of_value(self) -> int | None:
        """Return where the value ends that begins here; None where the window has not all of it."""
        try:
            _, end = self._scan(self._text, self._at)
        except json.JSONDecodeError as error:
            is_open = error.msg.startswith("Unterminated") or error.pos >= len(self._text)
            if not self._at_end and (is_open or error.pos >= len(self._text) - _TOKEN_CHARS):
                return None
            what = "ends within a value, as if it were cut short" if is_open else "is not JSON"
            self.fail(f"{what}: {error.msg}", at=error.pos)
        except _NotJson as error:
            self.fail(f"{error} is not JSON: write null, or a text")
        except RecursionError:
            self.fail("is nested too deep")
        if end == len(self._text) and not self._at_end and self._text[end - 1] not in '}]"':
            return None  # a number may go on
        return end

    def fail(self, problem: str, *, at: int | None = None) -> NoReturn:
        """Raise Invalid with the line."""
        raise bad_input(self._where(self._at if at is None else at), problem)

    def _where(self, at: int) -> str:
        return f"{self._name}: line {self._line + self._text.count(chr(10), 0, at)}"

    def _grow(self) -> None:
        """Drop what is behind, and read as much as is left or more, so that a large element is scanned few times."""
        self._line += self._text.count("\n", 0, self._at)
        pieces, self._at = [self._text[self._at :]], 0
        wanted = max(_WINDOW_BYTES, len(pieces[0]))
        while wanted > 0 and not self._at_end:
            chunk = self._stream.take(wanted)
            wanted -= len(chunk)
            self._at_end = not chunk
            try:
                pieces.append(self._utf8.decode(chunk, final=not chunk))
            except UnicodeDecodeError as error:
                self._text = "".join([*pieces, error.object[: error.start].decode()])
                self.fail("is not UTF-8", at=len(self._text))
            if len(pieces) == 2 and not pieces[0] and pieces[1]:
                break  # what is there is enough to go on
        self._text = "".join(pieces)


class _NotJson(Exception):
    """A word that Python's scanner accepts and JSON does not."""


def _refuse(word: str) -> NoReturn:
    raise _NotJson(word)
