"""What every benchmark needs: a calibration loop, memory figures, and a table at the end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Row", "anonymous_bytes", "best_of", "calibrate", "report"]

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


def report(title: str, rows: list[Row]) -> None:
    """Print a table, and whether each bar was met."""
    width = max(len(row[0]) for row in rows)
    print(f"\n{title}")
    for what, measured, bar, met in rows:
        print(f"  {what:<{width}}  {measured:>28}  bar {bar:<14} {'met' if met else 'MISSED'}")
