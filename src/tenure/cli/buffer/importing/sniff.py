"""Which format a file has: first by what is in it, then by its name.

Lines are the format of what has no other sign, so what is plainly no text is refused: taken for lines, it would become
thousands of entries without meaning.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final, Literal, NamedTuple

import msgspec

from tenure.cli.buffer.importing.csv_rows import delimiter_of
from tenure.cli.buffer.importing.stream import Stream
from tenure.errors import Invalid

__all__ = ["AS_IT_IS", "Format", "Taken", "sniff"]

Format = Literal["lines", "csv", "json", "parquet"]
AS_IT_IS: Final = "pass --whole for one entry per file, or --format lines to take each line as it is"
_HEAD_BYTES: Final = 1 << 16
_SUFFIXES: Final[dict[str, Format]] = {
    **{".csv": "csv", ".tsv": "csv", ".json": "json", ".ndjson": "lines", ".jsonl": "lines"},
    **{".parquet": "parquet", ".pq": "parquet"},
}
_COMPRESSED: Final = frozenset((".gz", ".gzip", ".zst", ".zstd"))
_CALLED: Final = {"json": "a JSON document over several lines", "parquet": "a Parquet file"}
_TO_UTF8: Final = "UTF-16: pipe it through iconv -f UTF-16 -t UTF-8"
_FOREIGN: Final = {
    b"PK\x03\x04": "a zip archive, as xlsx is: unpack it first",
    b"\xfd7zXZ\0": "compressed with xz: pipe it through xzcat",
    b"BZh91AY&SY": "compressed with bzip2: pipe it through bzcat",
    b"Obj\x01": "an Avro file: convert it to JSON, CSV or Parquet first",
    b"SQLite format 3\0": "an SQLite database: export a table as CSV first",
    b"\xff\xfe": _TO_UTF8,
    b"\xfe\xff": _TO_UTF8,
}


class Taken(NamedTuple):
    """What a file was taken for."""

    format: Format
    delimiter: str | None = None


def sniff(stream: Stream, name: str, *, wanted: Format | None) -> Taken:
    """Return what the rest of the stream is. Raises Invalid (``bad_format``) where it is not what the caller wants, or
    nothing that can be imported.
    """
    head = stream.look(_HEAD_BYTES, until=_is_enough)
    suffix = _suffix_of(name)
    known = _SUFFIXES.get(suffix)
    _refuse_foreign(head, name)
    plain: Format | None = "parquet" if _is_parquet(head) else None
    if plain is None and _is_document(head, at_end=stream.at_end, known=known):
        plain = "json"
    if plain is not None:
        if wanted not in (None, plain):
            raise _bad(f"{name} is {_CALLED[plain]}: pass --format {plain}, or --whole for one entry per file")
        return Taken(plain)
    found = wanted or known or "lines"
    if found == "parquet" and (head or wanted):
        raise _bad(f"{name} is no Parquet file: pass the --format that it has")
    if b"\0" in head and wanted is None:
        raise _bad(f"{name} has NUL bytes, as binary data has: {AS_IT_IS}")
    if found == "json" and wanted is None and _shape(head.lstrip().partition(b"\n")[0]) == "whole":
        found = "lines"
    if found == "csv":
        header = head.lstrip(b"\r\n").partition(b"\n")[0].decode("utf-8", "replace")
        return Taken("csv", "\t" if suffix == ".tsv" else delimiter_of(header))
    return Taken(found)


def _suffix_of(name: str) -> str:
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def _refuse_foreign(head: bytes, name: str) -> None:
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise _bad(f"{name} is {what}; --whole makes it one entry as it is")


def _bad(message: str) -> Invalid:
    return Invalid(message, code="bad_format")


def _is_parquet(head: bytes) -> bool:
    return head.startswith(b"PAR1") and b"\0" in head


def _is_enough(head: bytes) -> bool:
    """Return whether the head has a whole line, and what follows it where the line could be the whole of an array."""
    first, end, rest = head.lstrip().partition(b"\n")
    return bool(end) and (bool(rest.strip()) or not first.startswith(b"["))


def _is_document(head: bytes, *, at_end: bool, known: Format | None) -> bool:
    """Return whether the head begins a JSON document, and not lines of which each is a value.

    It does if its first line is not a whole value, and everything up to the end of the head is JSON that goes on. A
    single line with an array is one as well, if its elements are objects or the name says so.
    """
    head = head.lstrip()
    first, end, rest = head.partition(b"\n")
    if head[:1] not in (b"[", b"{"):
        return False
    shape = _shape(first if end or at_end else _without_last_token(first))
    if shape == "whole":
        alone = head[:1] == b"[" and at_end and not rest.strip()
        return alone and (known == "json" or (known is None and _has_objects_only(first)))
    if shape == "cut" and end:
        return _shape(head if at_end else _without_last_token(head)) != "no"
    return shape == "cut" and head[:1] == b"["  # an object in one long line is the same entry as the line


def _shape(text: bytes) -> Literal["whole", "cut", "several", "no"]:
    """Return whether the text is a JSON value, the beginning of one, several, or none."""
    try:
        msgspec.json.format(text, indent=-1)
    except msgspec.DecodeError as error:
        return "cut" if "truncated" in str(error) else "several" if "trailing characters" in str(error) else "no"
    return "whole"


def _without_last_token(text: bytes) -> bytes:
    return text[: max(text.rfind(b","), text.rfind(b"\n"), 1)]


def _has_objects_only(line: bytes) -> bool:
    elements = msgspec.json.decode(line, type=list[msgspec.Raw])
    return bool(elements) and all(bytes(element).lstrip().startswith(b"{") for element in elements)
