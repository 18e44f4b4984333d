"""A file, or standard input, as the entries that are in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from tenure.cli.buffer.importing.compression import decompressed
from tenure.cli.buffer.importing.csv_rows import csv_rows
from tenure.cli.buffer.importing.json_document import json_values
from tenure.cli.buffer.importing.lines import line_parts
from tenure.cli.buffer.importing.parquet_rows import parquet_rows
from tenure.cli.buffer.importing.part import ENTRY_BYTES_MAX, Part, gathered, too_large
from tenure.cli.buffer.importing.sniff import Format, Taken, sniff
from tenure.cli.buffer.importing.stream import Stream
from tenure.errors import Invalid

__all__ = ["Reading", "Source", "Types"]

Types = Literal["inferred", "text"]
_BOM: Final = b"\xef\xbb\xbf"
_STDIN: Final = "standard input"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the caller wants files to be read; None means as they are found."""

    format: Format | None = None
    types: Types = "inferred"
    delimiter: str | None = None
    whole: bool = False


class Source:
    """One file, opened and looked at; ``path`` None is standard input. Raises Invalid, OSError."""

    def __init__(self, path: Path | None, reading: Reading) -> None:
        self.path = path
        self.name = _STDIN if path is None else str(path)
        self._reading = reading
        self._file = open(os.dup(sys.stdin.fileno()) if path is None else path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._raw = Stream(self._file.read)
            self._stream, self.compression = (self._raw, None) if reading.whole else decompressed(self._raw, self.name)
            self.taken = self._look()
        except BaseException:
            self._file.close()
            raise

    @property
    def bytes_read(self) -> int:
        """Return how much of the file was read."""
        return self._raw.bytes_read

    @property
    def form(self) -> str:
        """Return in words what the file was taken for."""
        if self._reading.whole:
            return "one entry"
        words = {"lines": "lines", "csv": "CSV", "json": "JSON", "parquet": "Parquet"}[self.taken.format]
        if self.taken.delimiter is not None:
            words += f" with {_DELIMITERS.get(self.taken.delimiter, repr(self.taken.delimiter))}"
        return words if self.compression is None else f"{words}, {self.compression}"

    def parts(self) -> Iterator[Part]:
        """Yield the entries. Raises Invalid (``bad_input``) with the place of what cannot be read, and OSError."""
        if self._reading.whole:
            return self._whole()
        return _READERS[self.taken.format](self)

    def close(self) -> None:
        self._file.close()

    def _look(self) -> Taken:
        if self._reading.whole:
            return Taken("lines")
        if self._stream.look(len(_BOM)) == _BOM:
            self._stream.skip(len(_BOM))
        taken = sniff(self._stream, self.name, wanted=self._reading.format)
        if taken.format == "parquet" and (self.path is None or self.compression is not None):
            how = "on standard input" if self.path is None else f"inside {self.compression}"
            raise Invalid(f"{self.name}: Parquet {how} cannot be read: it begins at its end. Name a plain file")
        if taken.format == "csv" and self._reading.delimiter is not None:
            return taken._replace(delimiter=self._reading.delimiter)
        return taken

    def _whole(self) -> Iterator[Part]:
        content = self._raw.look(ENTRY_BYTES_MAX + 1)
        if len(content) > ENTRY_BYTES_MAX:
            raise too_large(self.name)
        yield Part([content])

    def _lines(self) -> Iterator[Part]:
        return line_parts(self._stream, self.name, text_only=self._reading.format is None)

    def _csv(self) -> Iterator[Part]:
        assert self.taken.delimiter is not None
        text_only = self._reading.types == "text"
        return gathered(csv_rows(self._stream, self.name, delimiter=self.taken.delimiter, text_only=text_only))

    def _json(self) -> Iterator[Part]:
        return gathered(json_values(self._stream, self.name))

    def _parquet(self) -> Iterator[Part]:
        assert self.path is not None
        return gathered(parquet_rows(self.path))


_DELIMITERS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_READERS: Final[dict[Format, Callable[[Source], Iterator[Part]]]] = {
    "lines": Source._lines,
    "csv": Source._csv,
    "json": Source._json,
    "parquet": Source._parquet,
}
