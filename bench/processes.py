"""What a process and everything below it take: memory at its peak, and processor time."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["Peak", "cpu_s", "family"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EVERY_S = 0.1


class Peak:
    """The most anonymous memory that a process and its children held at once while the block ran, in ``mb``."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        is_over = False
        while not is_over:  # once more at the end, however short the block was
            is_over = self._over.wait(_EVERY_S)
            self.mb = max(self.mb, sum(map(_anonymous_mb, family(self._pid))))


def cpu_s(pid: int | None = None) -> float:
    """Return the processor seconds of a process, by default this one, and of all below it, ended ones included."""
    ticks = 0
    for each in family(pid or os.getpid()):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_S


def family(pid: int) -> list[int]:
    """Return a process and everything below it."""
    found = [pid]
    for parent in found:
        with suppress(OSError):  # gone meanwhile
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, task.read_text().split())
    return found


def _anonymous_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(held[0]) / 1024 if held else 0.0
