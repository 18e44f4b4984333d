"""CSV rows as entries: each a JSON object with a field per column of the header.

CSV has no types. An empty field is null. A field that JSON would write as the same number, digit by digit, becomes that
number, and ``true`` and ``false`` become booleans: so a schema may call a column ``long`` or ``string`` as it likes, as
both read the same digits. ``007``, ``1e5``, ``+1`` or ``NaN`` are texts, and with ``text_only`` all fields are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tenure.cli.buffer.importing.part import ENTRY_BYTES_MAX, bad_input, too_large
from tenure.cli.buffer.importing.stream import Stream

__all__ = ["csv_rows", "delimiter_of"]

_DELIMITERS: Final = (",", "\t", ";", "|")
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_DIGITS_MAX: Final = 38
"""The digits of the longest decimal that tables have."""
_LONG_DIGITS: Final = 18
"""Every whole number of so many digits is a long; of those with one more, some are."""
_LONG_MAX: Final = 2**63
_encode = msgspec.json.Encoder().encode


def delimiter_of(header: str) -> str:
    """Return the delimiter that a header line has most of, outside of quotes; a comma if it has none."""
    bare = _QUOTED.sub("", header)
    return max(_DELIMITERS, key=bare.count)


def csv_rows(stream: Stream, name: str, *, delimiter: str, text_only: bool) -> Iterator[bytes | None]:
    """Yield rows as JSON objects, and None for each blank line.

    Raises Invalid (``bad_input``) with the line: for a row with another number of fields than the header, quotes that
    do not match, bytes that are not UTF-8, a line that is too long, and two columns of one name.
    """
    csv.field_size_limit(ENTRY_BYTES_MAX)
    rows = csv.reader(_lines(stream, name), delimiter=delimiter, strict=True)
    value = _text if text_only else _value
    keys: list[bytes] | None = None
    while True:
        where = f"{name}: line {rows.line_num + 1}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise bad_input(where, f"is not CSV: {error}") from error
        if row is None:
            return
        if not row:
            yield None
        elif keys is None:
            keys = _keys(row, where)
        elif len(row) != len(keys):
            problem = f"has {len(row):,} fields, and the header {len(keys):,}: quote a delimiter within a field"
            raise bad_input(where, problem)
        else:
            entry = b"{%b}" % b",".join([key + value(text) for key, text in zip(keys, row, strict=True)])
            if len(entry) > ENTRY_BYTES_MAX:
                raise too_large(where)
            yield entry


def _keys(header: list[str], where: str) -> list[bytes]:
    """Return the fields' names as JSON with their colon; a column without a name is called after its place."""
    names = [text.strip() or f"column{place}" for place, text in enumerate(header, 1)]
    doubled = next((each for each in names if names.count(each) > 1), None)
    if doubled is not None:
        raise bad_input(where, f"the header has two columns named {doubled}: rename one")
    return [_encode(each) + b":" for each in names]


def _value(text: str) -> bytes:
    if text == "true" or text == "false" or (_NUMBER.fullmatch(text) and _is_exact(text)):
        return text.encode()
    return _text(text)


def _text(text: str) -> bytes:
    return _encode(text) if text else b"null"


def _is_exact(number: str) -> bool:
    """Return whether a number can be read again without loss: whole ones as a long, others as a decimal."""
    if number == "-0":
        return False
    if "." in number:
        return len(number) <= _DIGITS_MAX
    return len(number) <= _LONG_DIGITS or (len(number) <= _LONG_DIGITS + 2 and -_LONG_MAX <= int(number) < _LONG_MAX)


def _lines(stream: Stream, name: str) -> Iterator[str]:
    """Yield lines with their ends, as the csv module takes them."""
    source = io.BufferedReader(stream)
    number = 0
    while line := source.readline(ENTRY_BYTES_MAX + 1):
        number += 1
        if len(line) > ENTRY_BYTES_MAX:
            raise too_large(f"{name}: line {number}")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            problem = "is not UTF-8: convert the file first, for example with iconv -f WINDOWS-1252 -t UTF-8"
            raise bad_input(f"{name}: line {number}", problem) from error
