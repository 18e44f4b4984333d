"""Plots as SVG, written by hand: groups of bars on a logarithmic scale, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.peers.cell import CELLS
from bench.peers.results import Results
from bench.peers.table import figure

__all__ = ["bars", "of_cells"]

_WIDTH = 900
_LABEL = 250
_ROW = 18
_GAP = 34
_OURS, _THEIRS = "#2f7d5b", "#8a94a6"

Group = tuple[str, Sequence[tuple[str, float, bool]]]
"""A title, and for each bar its label, its value, and whether it is ours."""


def of_cells(results: Results, names: Sequence[str], title: str) -> str:
    """Return a plot of the medians in some cells, best first."""
    cells = {cell.name: cell for cell in CELLS}
    groups: list[Group] = []
    for name in names:
        cell = cells[name]
        medians = [(median, peer) for peer in results.figures.get(name, {}) if (median := results.median(name, peer))]
        medians.sort(reverse=cell.more_is_better)
        entries = [
            (results.peers[peer].title.replace("`", ""), median, peer.startswith("tenure")) for median, peer in medians
        ]
        groups.append((f"{cell.title}, {cell.unit}", entries))
    return bars(title, groups)


def bars(title: str, groups: Sequence[Group]) -> str:
    """Return the plot: lengths are logarithms from the power of ten below the smallest value, with numbers beside."""
    values = [value for _, entries in groups for _, value, _ in entries if value > 0]
    low = math.floor(math.log10(min(values))) if values else 0
    high = math.log10(max(values)) if values else 1
    per_decade = (_WIDTH - _LABEL - 90) / max(high - low, 1e-9)
    parts, y = [_text(10, 24, title, size=16, bold=True)], 34
    for name, entries in groups:
        y += _GAP - _ROW
        parts.append(_text(10, y, name, size=13, bold=True))
        for label, value, is_ours in entries:
            y += _ROW
            length = max(2.0, (math.log10(value) - low) * per_decade) if value > 0 else 2.0
            parts.append(_text(_LABEL - 8, y, label, anchor="end"))
            color = _OURS if is_ours else _THEIRS
            parts.append(f'<rect x="{_LABEL}" y="{y - 11}" width="{length:.1f}" height="13" fill="{color}"/>')
            parts.append(_text(_LABEL + length + 6, y, figure(value)))
        y += _ROW
    y += 8
    parts.append(_text(_LABEL, y, "logarithmic scale: one decade more is the same length more", size=11))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 14}" font-family="sans-serif">'
    ground = f'<rect width="{_WIDTH}" height="{y + 14}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="#1c2430"{weight}>'
        f"{escape(text)}</text>"
    )
