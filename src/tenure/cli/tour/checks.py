"""Checks of the tour: it prints only what it has checked."""

from __future__ import annotations

__all__ = ["Surprise", "expect"]


class Surprise(Exception):
    """Raised where a claim of the tour does not hold."""


def expect(holds: bool, claim: str) -> None:
    """Raise Surprise unless the claim holds; unlike an assert, also under ``python -O``."""
    if not holds:
        raise Surprise(claim)
