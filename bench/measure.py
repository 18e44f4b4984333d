"""What every benchmark needs: a calibration loop, figures of memory and CPU time, and a table at the end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Row", "anonymous_bytes", "best_of", "calibrate", "cpu_s", "family", "report"]

Row = tuple[str, str, str, bool]
"""(what, measured, bar, met)."""


def calibrate() -> float:
    """Plain Python loop turns per second on this interpreter now: the yardstick to compare machines by."""
    turns = 2_000_000
    seconds = best_of(3, lambda: _spin(turns))
    return turns / seconds


def _spin(turns: int) -> None:
    total = 0
    for turn in range(turns):
        total += turn


def best_of(times: int, work: Callable[[], object]) -> float:
    """The shortest of several runs in seconds: the one that was disturbed least."""
    shortest = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def anonymous_bytes() -> int:
    """Resident anonymous memory of this process (RssAnon): the page cache is not counted."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None, "/proc/self/status tells RssAnon on Linux 4.5 and later"
    return int(found[1]) * 1024


def family(pid: int) -> list[int]:
    """A process and everything below it."""
    found = [pid]
    for parent in found:
        try:
            tasks = list(Path(f"/proc/{parent}/task").glob("*/children"))
        except OSError:  # gone meanwhile
            continue
        for task in tasks:
            with suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def cpu_s() -> float:
    """CPU time of this process and everything below it, with the children that have ended and were waited for."""
    return sum(map(_ticks, family(os.getpid()))) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # gone meanwhile
        return 0
    return sum(map(int, fields[11:15]))


def report(title: str, rows: list[Row]) -> None:
    """Print a table, and whether each bar was met."""
    width = max(len(row[0]) for row in rows)
    print(f"\n{title}")
    for what, measured, bar, met in rows:
        print(f"  {what:<{width}}  {measured:>28}  bar {bar:<14} {'met' if met else 'MISSED'}")
