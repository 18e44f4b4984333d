"""The page of a run."""

from __future__ import annotations

from pathlib import Path

from bench.peers.results import Results


def write(results: Results, place: Path) -> None:
    """Write the page."""
