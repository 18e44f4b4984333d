"""`expect`: check a claim of the tour before it is printed."""

from __future__ import annotations

__all__ = ["Surprise", "expect"]


class Surprise(Exception):
    """A claim of the tour does not hold."""


def expect(holds: bool, claim: str) -> None:
    """Raise Surprise unless the claim holds; unlike an assert, also under ``python -O``."""
    if not holds:
        raise Surprise(claim)
