"""`Repeat`: what a second copy of a request does, which decides whether a caller may retry it."""

from __future__ import annotations

from enum import Enum

__all__ = ["Repeat"]


class Repeat(Enum):
    """What a second copy of a call does."""

    READ = "it changes nothing"
    SAFE = "it has the effect of one"
    NEVER = "it could reach what came in between"
