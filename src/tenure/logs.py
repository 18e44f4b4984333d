"""What a server or a worker says while it runs: one line per happening, as text for people or JSON for programs.

Neither a token nor a payload can get into a line: requests are logged by their route and never by their query, headers
or body, and only fields on a short list are taken from a record.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

__all__ = ["FIELDS", "JOB_FIELDS", "configure", "one_line"]

FIELDS: Final = (
    *("method", "route", "status", "ms", "key_id", "client"),
    *("address", "topics", "batches", "torn_bytes", "keys", "streams", "signal", "path_length", "reason"),
)
"""What a line may tell beside its message."""
JOB_FIELDS: Final = ("queue", "seq", "attempt")
"""What a worker's line in JSON tells besides; as text, its message begins with them."""


class _Lines(logging.Formatter):
    """Makes lines. ``tracebacks`` shows errors as Python does, with their causes and what they say."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._trace = _traceback if tracebacks else _places


class _Text(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {one_line(record.getMessage())} {fields}".rstrip()
        trace = self._trace(record)
        return f"{line}\n{trace}" if trace else line


class _Json(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"ts": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage()} | _fields(record, FIELDS + JOB_FIELDS)
        if record.exc_info:
            line["trace"] = self._trace(record)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(
    log_format: str, *, level: int = logging.INFO, stream: TextIO | None = None, tracebacks: bool = False
) -> None:
    """Send what Tenure logs to ``stream`` (standard error unless told), as "text" or as "json".

    With ``tracebacks`` errors are shown as Python shows them: for workers, whose errors are those of their own authors.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    kind = _Json if log_format == "json" else _Text
    handler.setFormatter(kind(tracebacks=tracebacks))
    root = logging.getLogger("tenure")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def one_line(text: str) -> str:
    """A message without line breaks and other control characters, so that nothing sent to us can forge a line."""
    return "".join(char if char.isprintable() else " " for char in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord, names: tuple[str, ...] = FIELDS) -> dict[str, Any]:
    found = {name: getattr(record, name) for name in names if hasattr(record, name)}
    return {name: one_line(value) if isinstance(value, str) else value for name, value in found.items()}


def _places(record: logging.LogRecord) -> str:
    """Where it happened, by file and line. The exception's own text may quote what a caller sent, so it is left out."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    kind, _, trace = record.exc_info
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
    return f"{kind.__name__} at {' < '.join(reversed(places))}"


def _traceback(record: logging.LogRecord) -> str:
    """Where it happened, as Python shows it."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
