"""`Selection`: the dead letters that a redrive, a listing or a drop is about."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

import msgspec

__all__ = ["Selection", "TagMatch"]


class TagMatch(Protocol):
    """A condition on tags."""

    def matches(self, tag: str | None) -> bool: ...


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """All dead letters, or those that meet every given condition; ``reason_like`` is a part of the reason."""

    seqs: Set[int] | None = None
    match: TagMatch | None = None
    reason_like: str | None = None

    def takes(self, seq: int, tag: str | None, reason: str) -> bool:
        """Return whether a dead letter meets every condition."""
        if self.seqs is not None and seq not in self.seqs:
            return False
        if self.match is not None and not self.match.matches(tag):
            return False
        return self.reason_like is None or self.reason_like in reason
