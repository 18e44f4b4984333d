"""The marks that a handler leaves in a file, so that the harness can count and time any framework the same way."""

from __future__ import annotations

import os
import time

__all__ = ["BODY", "PORT", "QUEUE", "handled"]

PORT = int(os.environ.get("BENCH_PORT", "0"))
QUEUE = os.environ.get("BENCH_QUEUE", "bench")
BODY = "x" * 200
_MARK = b"%19d\n"
_file: int | None = None


def handled(sent_ns: int) -> None:
    """Append a line with the ns since ``sent_ns``; appends are atomic, so threads and processes may share the file."""
    global _file
    took_ns = time.monotonic_ns() - sent_ns
    if _file is None:
        _file = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, _MARK % took_ns)
