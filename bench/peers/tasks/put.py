"""The process that puts tasks: `python -m bench.peers.tasks.put FRAMEWORK many|idle COUNT`."""

from __future__ import annotations

import os
import random
import sys
import time
from importlib import import_module
from pathlib import Path

_PATIENCE_S = 60.0
_PAUSE_S = (0.005, 0.04)
_IDLE_S_MAX = 30.0
"""A framework that polls takes seconds for each task: what it did in this time is enough."""


def main(framework: str, how: str, count: int) -> None:
    """Put tasks all at once, or one at a time to a worker at rest."""
    module = import_module(f"bench.peers.tasks.{framework}")
    module.prepare()
    if how == "many":
        module.put_many(count)
        return
    marks = Path(os.environ["BENCH_MARKS"])
    end = time.monotonic() + _IDLE_S_MAX
    for _ in range(count):
        if time.monotonic() > end:
            return
        before = marks.stat().st_size
        module.put(time.monotonic_ns())
        _until_longer(marks, before)
        time.sleep(random.uniform(*_PAUSE_S))


def _until_longer(marks: Path, before: int) -> None:
    end = time.monotonic() + _PATIENCE_S
    while marks.stat().st_size == before:
        if time.monotonic() > end:
            raise SystemExit(f"no handler was entered within {_PATIENCE_S} s")
        time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
