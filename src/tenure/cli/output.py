"""Guard standard output: a full disk or a closed pipe raises `OutputFailed`, from any depth.

Commands catch the errors of servers and files as OSError. An error of standard output is different: the command was
carried out, and only its answer is lost.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["OutputFailed", "discard_output", "guard_output"]

_STDOUT: Final = 1
_STDERR: Final = 2


class OutputFailed(Exception):
    """Standard output could not be written; ``error`` is why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.error = error


class _Guarded(io.FileIO):
    """A descriptor whose failed writes raise OutputFailed."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from error


class _Unbuffered(io.BufferedWriter):
    """A writer that flushes every write, as `python -u` does: the prints of a handler are out before it ends."""

    def write(self, data: ReadableBuffer) -> int:
        written = super().write(data)
        self.flush()
        return written


def guard_output() -> None:
    """Make standard output raise OutputFailed, and replace characters that the terminal cannot encode.

    A closed standard stream becomes /dev/null: otherwise the next file or socket would take its number.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    at_once = bool(getattr(sys.stdout, "write_through", False))
    raw = _Guarded(_STDOUT, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        _Unbuffered(raw) if at_once else io.BufferedWriter(raw),
        encoding=encoding,
        errors="replace",
        line_buffering=raw.isatty(),
        write_through=at_once,
    )
    if sys.stderr is None:
        sys.stderr = os.fdopen(_STDERR, "w", closefd=False)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")


def discard_output() -> None:
    """Send buffered output to /dev/null, so that Python does not report an error while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
