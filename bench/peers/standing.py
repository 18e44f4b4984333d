"""Where Tenure stands: its figure in each cell beside the best of the others, and the bar that it is held to."""

from __future__ import annotations

from typing import Final

import msgspec

from bench.peers.cell import CELLS, Cell
from bench.peers.results import Results

__all__ = ["BARS", "Bar", "Standing", "standings"]


class Bar(msgspec.Struct, frozen=True):
    """What is asked of Tenure in a cell: a ratio to the best of some rivals, or a limit of its own."""

    cell: str
    subject: str = "tenure"
    rivals: tuple[str, ...] = ()
    """By name; empty means every peer with leases."""
    ratio: float = 1.0
    limit: float | None = None
    """In the unit of the cell, at most; then nobody is compared."""


_FORKED: Final = ("celery", "dramatiq", "rq")
BARS: Final = (
    Bar("produce-1", rivals=("redis-stream",)),
    Bar("produce-100", ratio=2.0),
    Bar("produce-1000", ratio=3.0),
    Bar("claim-1", rivals=("redis-stream",)),
    Bar("claim-100", ratio=2.0),
    Bar("claim-1000", ratio=2.5),
    Bar("both-100"),
    Bar("concurrent-32", ratio=1.5),
    Bar("concurrent-32", "tenure-producer", ratio=4.0),
    Bar("latency-p50"),
    Bar("latency-p99"),
    Bar("memory", limit=60.0),
    Bar("restart", limit=0.6),
    Bar("tasks", "tenure-worker", _FORKED, 10.0),
    Bar("tasks", "tenure-worker", ("taskiq",), 2.0),
    Bar("tasks", "tenure-worker", ("procrastinate",)),
    Bar("idle-p50", "tenure-worker", limit=1.0),
    Bar("idle-p99", "tenure-worker", (*_FORKED, "taskiq", "procrastinate")),
)


class Standing(msgspec.Struct, frozen=True):
    """One line: the figure of Tenure, that of the best rival, and how many times better it is."""

    cell: Cell
    bar: Bar
    figure: float
    rival: str | None
    """The best of the rivals, by its name; None where the bar is a limit."""
    rival_figure: float
    ratio: float
    """Above one is better than the rival, or below the limit, whichever way the unit goes."""

    @property
    def is_met(self) -> bool:
        """Whether the bar is met."""
        return self.ratio >= self.bar.ratio


def standings(results: Results) -> list[Standing]:
    """Return a line for each bar whose cell was measured on both sides."""
    cells = {cell.name: cell for cell in CELLS}
    found = (_standing(results, cells[bar.cell], bar) for bar in BARS)
    return [standing for standing in found if standing is not None]


def _standing(results: Results, cell: Cell, bar: Bar) -> Standing | None:
    figure = results.median(cell.name, bar.subject)
    if figure is None:
        return None
    if bar.limit is not None:
        return Standing(cell, bar, figure, None, bar.limit, bar.limit / figure)
    best = _best(results, cell, bar)
    if best is None:
        return None
    value, rival = best
    return Standing(cell, bar, figure, rival, value, figure / value if cell.more_is_better else value / figure)


def _best(results: Results, cell: Cell, bar: Bar) -> tuple[float, str] | None:
    """Return the best figure among the rivals and whose it is; Tenure is no rival of itself."""
    names = [name for name in results.figures.get(cell.name, {}) if not name.startswith("tenure")]
    if bar.rivals:
        names = [name for name in names if name in bar.rivals]
    else:
        names = [name for name in names if results.peers[name].leases]
    figures = [(median, name) for name in names if (median := results.median(cell.name, name)) is not None]
    if not figures:
        return None
    return max(figures) if cell.more_is_better else min(figures)
