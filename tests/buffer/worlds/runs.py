"""Runs of worlds by their seeds."""

from __future__ import annotations

from collections import Counter

from tests.buffer.worlds.world import World
from tests.lives.anomaly import Anomaly

__all__ = ["run"]


def run(seed: int, tally: Counter[str] | None = None) -> Anomaly | None:
    """Play one world, and return the anomaly that it shows."""
    world = World(seed)
    try:
        world.play()
    except Anomaly as anomaly:
        return anomaly
    finally:
        if tally is not None:
            tally += world.tally
    return None
