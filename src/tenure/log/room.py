"""How much room a log keeps of a full disk, and for whom: numbers alone, which its writer checks its spares against.

Segments are kept allocated ahead, as many as acks may need and enough for reclaiming space: an ordinary append must
leave them all, an urgent one must leave enough to empty any segment into, and what empties it may use all there is,
because it gives a segment back. So jobs can be settled one by one on a full disk, and space is always won back.

The rewrite of a segment may be longer than the segment: a record in a rewritten frame has times of its own, and the
base of a topic replaces events that lie in later segments. The owner says how much that is for the whole log.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenure.log.segment import HEAD_BYTES, Head

__all__ = ["Room"]

_OWN_BYTES_MAX = 4096
#: The part of a segment that its rewrite may lose: where a frame does not fit the end of a spare, and to small spares.
_LOSS_SHARE = 8


class Room:
    """What is reserved of a log whose segments have ``segment_bytes``, where nothing larger is appended at once."""

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        #: What each segment keeps for the log's own frames.
        self.own_bytes = min(_OWN_BYTES_MAX, segment_bytes // 16)
        #: How many spares are kept: for acks, and one for reclaiming, into which the largest segment must fit.
        self.kept = 2
        #: How many would be kept with an eighth more reserved.
        self.kept_soon = self.kept
        #: How long a spare must be to empty any segment into.
        self.reclaim_bytes = segment_bytes
        #: Whether half a segment is enough for acks.
        self.is_small = True
        #: What emptying the oldest segment has appended since the last one was dropped.
        self.reclaimed_bytes = 0
        #: How much longer the whole log may become when it is rewritten once, and what its largest segment uses.
        self._growth_bytes = self._largest_bytes = 0

    def reserve(self, ack_bytes: int, growth_bytes: int) -> bool:
        """Keep as much as all acks may need, and the growth of a rewrite; return whether that asks for other spares."""
        before = (self.kept, self.is_small)
        self._growth_bytes, both_bytes = growth_bytes, ack_bytes + growth_bytes
        self.kept, self.is_small = self._kept_for(both_bytes), 2 * ack_bytes <= self.segment_bytes
        self.kept_soon = self._kept_for(both_bytes + both_bytes // 8)
        return (self.kept, self.is_small) != before

    def _kept_for(self, reserved_bytes: int) -> int:
        """Return how many spares have that much room beside the one that a segment is emptied into, and its loss."""
        loss_bytes = self.segment_bytes // _LOSS_SHARE
        return 1 + max(1, -(-(reserved_bytes + loss_bytes) // self.usable_bytes(self.segment_bytes)))

    def usable_bytes(self, size: int) -> int:
        """Return how much of a spare of this size appends may use."""
        return size - HEAD_BYTES - self.own_bytes

    def measure(self, heads: Sequence[Head], *, capacity: int) -> None:
        """Note the largest segment, of which the last one has that capacity, and so how long a spare must be."""
        self._largest_bytes = max((head.previous_end for head in heads[1:]), default=0)
        self.reclaim_bytes = max(self.segment_bytes, self._rewritten_bytes(max(capacity, self._largest_bytes)))

    def spare_bytes(self, need: int) -> int:
        """Return how long spares must be that are left by an ordinary append of so much: it may need emptying, too."""
        return max(self.reclaim_bytes, self._rewritten_bytes(HEAD_BYTES + need))

    def _rewritten_bytes(self, used_bytes: int) -> int:
        """Return how long a segment must be to hold the rewrite of a long one that uses so much: it may take more."""
        if used_bytes <= self.segment_bytes:
            return 0
        return used_bytes + used_bytes // _LOSS_SHARE + self.own_bytes

    def owed_bytes(self) -> int:
        """Return how much room emptying a segment may still take; the log's own frames are never rewritten.

        It is that of the largest segment, because the oldest one gives back no more than it used.
        """
        used = self._largest_bytes
        if used <= self.segment_bytes:
            used = min(used, self.segment_bytes - self.own_bytes)
        return max(used - HEAD_BYTES + used // _LOSS_SHARE + self._growth_bytes - self.reclaimed_bytes, 0)
