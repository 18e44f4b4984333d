"""`Bounds`: what a caller may use up and which names it reaches, beside the command that it sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tenure.contract.names import describe_value
from tenure.contract.share import Share
from tenure.contract.values import check_reaches
from tenure.errors import Invalid

__all__ = ["UNBOUND", "Bounds", "Reaches"]

Reaches: TypeAlias = Callable[[str], bool]
"""Returns whether a caller may see and change a name."""


class Bounds:
    """The bounds of a caller; None is none. A command is a value that can be logged and sent; these belong to who asks.

    ``share`` bounds what it may use up of what all share, ``reaches`` which names it may see and change.
    """

    __slots__ = ("reaches", "share")

    def __init__(self, *, share: Share | None = None, reaches: Reaches | None = None) -> None:
        if share is not None and not isinstance(share, Share):
            raise Invalid(f"share must be a Share or None; got {describe_value(share)}")
        check_reaches(reaches)
        self.share = share
        self.reaches = reaches

    def covers(self, name: str) -> bool:
        """Return whether the caller reaches a name."""
        return self.reaches is None or self.reaches(name)


UNBOUND: Final = Bounds()
