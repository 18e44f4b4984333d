"""Names of queues: one for each round of each cell, so that no round finds what another left."""

from __future__ import annotations

import os

__all__ = ["fresh"]


def fresh() -> str:
    """Return a name that no queue has."""
    return f"b{os.urandom(5).hex()}"
