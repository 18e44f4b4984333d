"""Quantiles of a list of waits."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["quantile"]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of all are at or below. Raises ValueError where there are none."""
    if not values:
        raise ValueError("no values")
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))]
