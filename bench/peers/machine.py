"""The machine of a run: what it is, and how busy it is with other work."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

__all__ = ["BUSY_CORES_MAX", "busy_cores", "busy_cores_at_rest", "facts"]

BUSY_CORES_MAX = 0.5
"""With more of other work than this, figures are not worth keeping."""


def facts() -> dict[str, str]:
    """Return the processor, memory, kernel, file system and Python of this machine."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "processor": f"{os.cpu_count()} × {model[1] if model else platform.machine()}",
        "memory": f"{int(memory[1]) / 1e6:.0f} GB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def busy_cores(seconds: float) -> float:
    """Return how many cores were busy over that time, while this process waits."""
    before, started = _busy_ticks(), time.monotonic()
    time.sleep(seconds)
    ticks_per_s = (_busy_ticks() - before) / (time.monotonic() - started)
    return ticks_per_s / os.sysconf("SC_CLK_TCK")


def busy_cores_at_rest(seconds: float, *, patience: int) -> float:
    """Return how many cores are still busy once servers that start or tidy up had that many looks of time."""
    busy = busy_cores(seconds)
    while busy >= BUSY_CORES_MAX / 2 and patience > 0:
        busy, patience = busy_cores(seconds), patience - 1
    return busy


def _busy_ticks() -> int:
    """Return the ticks of all cores that were neither idle nor waiting for a disk."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(fields[:3]) + sum(fields[5:8])
