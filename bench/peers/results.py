"""The results of a run, as `results.json` keeps them: every figure of every round, not only the medians."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec

__all__ = ["Figures", "PeerFacts", "Results", "read", "write"]

Figures = dict[str, dict[str, list[float]]]
"""By cell and peer, a figure for each round."""


class PeerFacts(msgspec.Struct):
    """What the page says of one peer."""

    title: str
    version: str
    client: str
    settings: str
    notes: str = ""
    syncs: str = ""
    """Of the server, for one put, and for one claim and ack."""
    leases: bool = True


class Results(msgspec.Struct, kw_only=True):
    """One run."""

    date: str
    machine: dict[str, str]
    scale: dict[str, float]
    busy_cores: list[float] = []
    """How many cores were busy with other work, before each step of each round."""
    peers: dict[str, PeerFacts] = {}
    missing: dict[str, str] = {}
    """Peers that could not be had, with the reason."""
    failed: dict[str, str] = {}
    """By "peer, group", what went wrong in it; a figure of it is of fewer rounds, or not there."""
    figures: Figures = {}
    syncs_per_s: dict[str, list[float]] = {}
    """By cell, the bare write and sync of the same bytes, in each round."""
    echoes_per_s: dict[str, list[float]] = {}

    def add(self, peer: str, found: dict[str, float]) -> None:
        """Add the figures of one round."""
        for cell, value in found.items():
            self.figures.setdefault(cell, {}).setdefault(peer, []).append(value)

    def median(self, cell: str, peer: str) -> float | None:
        """Return the median of a peer in a cell; None where it has no figure there."""
        values = self.figures.get(cell, {}).get(peer)
        return statistics.median(values) if values else None

    def spread(self, cell: str, peer: str) -> float:
        """Return the distance of the lowest and the highest round, as a share of the median."""
        values = self.figures[cell][peer]
        middle = statistics.median(values)
        return (max(values) - min(values)) / middle if middle else 0.0


def write(results: Results, path: Path) -> None:
    """Write the results as JSON for people and programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read(path: Path) -> Results:
    """Read what `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
