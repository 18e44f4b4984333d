"""`Repeat`: whether a call may be sent a second time, where the outcome of the first is unknown."""

from __future__ import annotations

from enum import Enum

__all__ = ["Repeat"]


class Repeat(Enum):
    """What a second copy of a call does."""

    READ = "it changes nothing"
    SAFE = "it has the effect of one"
    NEVER = "it could reach what came in between"
