"""Reload for development: restart the worker process when a Python file changes."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tenure.extras import importing

__all__ = ["run_reloading"]

log = logging.getLogger("tenure.worker")


def run_reloading(command: Sequence[str], *, folders: Sequence[Path] = (Path(),)) -> int:
    """Run ``command`` and start it again when a Python file below ``folders`` changes; returns its last exit code.

    SIGTERM and SIGINT end it, and the worker drains; a second signal ends it at once. A worker that ends by itself is
    started again at the next change, for example after a syntax error is corrected. Raises Invalid where watchfiles is
    missing.
    """
    with importing("reloading needs watchfiles", "reload"):
        from watchfiles import PythonFilter, watch
    ending = threading.Event()
    process = _start(command)

    def end(*_: object) -> None:
        if ending.is_set():
            process.terminate()
        ending.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        changes = watch(*folders, watch_filter=PythonFilter(), stop_event=ending, raise_interrupt=False)
        for change in changes:
            names = sorted({Path(path).name for _, path in change})
            log.info("%s changed: the worker starts anew", ", ".join(names[:3]) + (" …" if len(names) > 3 else ""))
            _end(process)
            process = _start(command)
    finally:
        code = _end(process)
        for number, handler in before.items():
            signal.signal(number, handler)
    return code


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the worker in a session of its own, so that Ctrl-C reaches it once, through this process."""
    return subprocess.Popen([sys.executable, *command], start_new_session=True)


def _end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.terminate()
    return process.wait()
