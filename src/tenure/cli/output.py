"""Standard output that fails in one way: a full disk or a closed pipe raises `OutputFailed`, from any depth.

A command talks to a server and to files too, and catches the errors of both as OSError. An error of its own output is
another matter: the command was carried out, and only its answer is lost.
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
    """Standard output takes no more; ``error`` is why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.error = error


class _Guarded(io.FileIO):
    """A descriptor whose failed writes are told apart from those of every other file."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error) from error


class _Unbuffered(io.BufferedWriter):
    """Writes everything at once, as `python -u` does: what a handler prints is in the log before the handler ends."""

    def write(self, data: ReadableBuffer) -> int:
        written = super().write(data)
        self.flush()
        return written


def guard_output() -> None:
    """Make standard output raise OutputFailed, and write what the terminal does not know as a question mark.

    A standard stream that was closed becomes /dev/null: else the next file or socket would take its number.
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
    """Send what is still buffered to /dev/null, so that Python does not complain about it while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
