"""Tables of results: for the terminal, and in Markdown for the page."""

from __future__ import annotations

from bench.peers.cell import CELLS, Cell
from bench.peers.results import Results

__all__ = ["cells_with_figures", "figure", "markdown", "rows", "terminal"]


def figure(value: float) -> str:
    """Return a number with three digits that matter, and no more."""
    if value >= 100:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells_with_figures(results: Results, group: str) -> list[Cell]:
    """Return the cells of a group that somebody has a figure in."""
    return [cell for cell in CELLS if cell.group == group and results.figures.get(cell.name)]


def rows(results: Results, cells: list[Cell]) -> list[list[str]]:
    """Return a table with a head, a row for each peer, the missing ones, and the calibrations."""
    table = [["", *(f"{cell.title}, {cell.unit}" for cell in cells)]]
    for peer, facts in results.peers.items():
        if any(peer in results.figures[cell.name] for cell in cells):
            table.append([facts.title, *(_entry(results, cell, peer) for cell in cells)])
    for name, by_cell in (("bare write + fdatasync", results.syncs_per_s), ("bare echo", results.echoes_per_s)):
        medians = [sorted(by_cell[cell.name])[len(by_cell[cell.name]) // 2] for cell in cells]
        table.append([f"*{name}*, calls/s", *map(figure, medians)])
    return table


def _entry(results: Results, cell: Cell, peer: str) -> str:
    median = results.median(cell.name, peer)
    if median is None:
        return "–"
    if len(results.figures[cell.name][peer]) == 1:
        return figure(median)
    return f"{figure(median)} ± {results.spread(cell.name, peer) * 50:.0f} %"


def terminal(table: list[list[str]]) -> str:
    """Return the table in columns."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = []
    for row in table:
        first = f"  {row[0].replace('*', ''):<{widths[0]}}"
        lines.append(first + "".join(f"  {entry:>{width}}" for entry, width in zip(row[1:], widths[1:], strict=True)))
    return "\n".join(lines)


def markdown(table: list[list[str]], *, is_text: bool = False) -> str:
    """Return the table in Markdown; columns behind the first are numbers, unless it is text."""
    rule = ["---", *["---" if is_text else "---:"] * (len(table[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]])
