"""The cells of the tables: what each measures, in which unit, and which way is better."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["BATCHES", "CELLS", "GROUPS", "Cell", "groups_of"]

BATCHES: Final = (1, 100, 1_000)


class Cell(msgspec.Struct, frozen=True):
    """One column."""

    name: str
    group: str
    title: str
    unit: str
    more_is_better: bool = True
    batch: int = 1
    """How many payloads the calibration beside it writes and echoes at once."""


CELLS: Final = (
    *(Cell(f"produce-{batch}", "produce", f"produce ×{batch:,}", "jobs/s", batch=batch) for batch in BATCHES),
    *(Cell(f"claim-{batch}", "claim", f"claim + ack ×{batch:,}", "jobs/s", batch=batch) for batch in BATCHES),
    Cell("both-100", "both", "both at once ×100", "jobs/s", batch=100),
    Cell("concurrent-32", "concurrent", "32 producers ×1", "jobs/s"),
    Cell("latency-p50", "latency", "500/s, p50", "ms", False),
    Cell("latency-p99", "latency", "500/s, p99", "ms", False),
    Cell("memory", "million", "memory, long queue", "MB", False, 1_000),
    Cell("restart", "million", "restart, long queue", "s", False, 1_000),
    Cell("tasks", "tasks", "whole tasks", "tasks/s"),
    Cell("idle-p50", "idle", "idle worker, p50", "ms", False),
    Cell("idle-p99", "idle", "idle worker, p99", "ms", False),
)
GROUPS: Final = tuple(dict.fromkeys(cell.group for cell in CELLS))


def groups_of(words: list[str]) -> frozenset[str]:
    """Return the groups that are named; all of them where none is.

    Raises SystemExit for a word that names none, with the names there are.
    """
    for word in words:
        if word not in GROUPS:
            raise SystemExit(f"bench: no group of cells is called {word!r}; there are {', '.join(GROUPS)}")
    return frozenset(words or GROUPS)
