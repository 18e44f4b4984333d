"""Unsent bytes of all connections: bounded, by cutting the peers that take least of what they were answered."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tenure.http.wire.limits import WireLimits

__all__ = ["Holder", "Unsent"]


class Holder(Protocol):
    """An object that keeps bytes for one peer."""

    def unsent_bytes(self) -> int:
        """Return how many bytes are kept at this moment."""

    def taken_bytes(self) -> int:
        """Return how many bytes the peer has taken since it connected."""

    def abort(self) -> None:
        """Close without another byte."""


class _Hold(msgspec.Struct, gc=False):
    unsent_bytes: int
    since_s: float
    taken_bytes: int
    """What the peer had taken when it began to keep something back."""


class Unsent:
    """The sum of unsent bytes; above ``unsent_bytes_total_max`` peers are cut off.

    The first to go is the peer that is furthest behind: by what it should have taken at ``body_bytes_per_s_min`` since
    its buffers were last empty, less what it took. Of two that are equal it is the one that began earlier. So a peer
    that takes its bytes stays, no matter what others do.
    """

    __slots__ = ("_holds", "_limits", "total_bytes")

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._holds: dict[Holder, _Hold] = {}
        self.total_bytes = 0

    def note(self, holder: Holder, now_s: float) -> int:
        """Update a holder's share; return how many peers were cut off to make room."""
        unsent_bytes, hold = holder.unsent_bytes(), self._holds.get(holder)
        if hold is not None:
            self.total_bytes += unsent_bytes - hold.unsent_bytes
            hold.unsent_bytes = unsent_bytes
            if not unsent_bytes:
                del self._holds[holder]
        elif unsent_bytes:
            self.total_bytes += unsent_bytes
            self._holds[holder] = _Hold(unsent_bytes, now_s, holder.taken_bytes())
        if self.total_bytes <= self._limits.unsent_bytes_total_max:
            return 0
        return self._make_room(now_s)

    def forget(self, holder: Holder) -> None:
        """Remove a holder, which keeps nothing any more."""
        hold = self._holds.pop(holder, None)
        if hold is not None:
            self.total_bytes -= hold.unsent_bytes

    def _make_room(self, now_s: float) -> int:
        """Cut peers off until an eighth is free, so that not every answer after this one has to look for room."""
        for holder, hold in list(self._holds.items()):  # what was noted may have been taken since
            self.total_bytes -= hold.unsent_bytes
            hold.unsent_bytes = holder.unsent_bytes()
            self.total_bytes += hold.unsent_bytes
        if self.total_bytes <= self._limits.unsent_bytes_total_max:
            return 0
        cut, enough = 0, self._limits.unsent_bytes_total_max * 7 // 8
        for holder in sorted(self._holds, key=lambda one: self._behind_bytes(one, now_s), reverse=True):
            if self.total_bytes <= enough:
                break
            self.forget(holder)
            holder.abort()
            cut += 1
        return cut

    def _behind_bytes(self, holder: Holder, now_s: float) -> float:
        hold = self._holds[holder]
        due_bytes = (now_s - hold.since_s) * self._limits.body_bytes_per_s_min
        return due_bytes - (holder.taken_bytes() - hold.taken_bytes)
