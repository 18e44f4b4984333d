"""The tour says nothing that it has not checked."""

from __future__ import annotations

__all__ = ["Surprise", "expect"]


class Surprise(Exception):
    """Something that the tour says turned out not to be so."""


def expect(holds: bool, claim: str) -> None:
    """Go on only where the claim holds. Raises Surprise; unlike an assert, also under ``python -O``."""
    if not holds:
        raise Surprise(claim)
