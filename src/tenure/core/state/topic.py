"""A topic: a log of records by seq, with floors, caps and windows. A queue is a topic with leases on top.

Seqs count from 1 without gaps. Everything below ``floor`` is dead; above it, ``dead`` says which are. The state is
shaped for speed (arrays, bitmaps, plain ints) and only ``fold`` changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyroaring import BitMap64

from tenure.contract.config import SYNCED
from tenure.core.state.frame_index import SegmentIndex, cut
from tenure.core.state.ranges import first_absent

if TYPE_CHECKING:
    from tenure.contract.config import TopicConfig
    from tenure.core.state.client_marks import ClientMarks
    from tenure.core.state.idempotency import KeyWindow
    from tenure.core.state.queue import Queue
    from tenure.core.state.tags import TagIndex

__all__ = ["RECREATED_MAX", "Topic"]

RECREATED_MAX: Final = 16
"""How many restores a topic remembers: readers that come from a log before them are not told."""
_PACK_BITS: Final = 16
"""Packing is considered when a seq is buried that ends in this many zero bits: once per container of the bitmap."""


class Topic:
    """The folded state of one topic. What most topics never need is None until it is used, so an empty one is small.

    ``evict_from`` is a hint: no unleased record below it is left for eviction to look at. ``cap_floor`` and
    ``ttl_floor`` are one above the highest seq lost to each. ``trim_seq`` is the seq burnt to mark records that a
    router's source lost. ``implicit`` means that no caller ever chose its config. ``recreated`` are the runs of seqs
    that restores of a backup left out: the original log may have given them to other records. Not folded:
    ``durable_seq`` (the last synced seq), ``last_read_ms`` (wall).
    """

    __slots__ = (
        "base",
        "bytes",
        "cap_floor",
        "config",
        "count",
        "created_ms",
        "dead",
        "durable_seq",
        "evict_from",
        "floor",
        "frame_index",
        "head_seq",
        "id",
        "implicit",
        "keys",
        "last_read_ms",
        "last_write_ms",
        "marks",
        "name",
        "queue",
        "recreated",
        "tags",
        "trim_missed",
        "trim_seq",
        "ttl_floor",
    )

    def __init__(self, topic_id: int, name: str, config: TopicConfig) -> None:
        self.id = topic_id
        self.name = name
        self.config = config
        self.base = 0
        self.implicit = False
        self.created_ms = 0
        self.head_seq = 0
        self.floor = 1
        self.count = 0
        self.bytes = 0
        self.cap_floor = 0
        self.ttl_floor = 0
        self.trim_seq = 0
        self.trim_missed = 0
        self.evict_from = 1
        self.last_write_ms = 0
        self.dead: BitMap64 | None = None
        self.frame_index: list[SegmentIndex] = []
        self.queue: Queue | None = None
        self.keys: KeyWindow | None = None
        self.marks: ClientMarks | None = None
        self.tags: TagIndex | None = None
        self.recreated: tuple[int, ...] = ()
        self.durable_seq = 0
        self.last_read_ms = 0

    @property
    def visible_seq(self) -> int:
        """Return the last seq that claims and reads may see: the last synced one where the class is fsync."""
        return self.durable_seq if self.config.durability in SYNCED else self.head_seq

    def is_due(self, now_ms: int) -> bool:
        """Return whether log time has to pass here before the topic is as it is at ``now_ms``."""
        return self.queue is not None and now_ms >= self.queue.next_change_ms

    @property
    def evict_floor(self) -> int:
        """Return one above the highest seq lost to a cap or a TTL; 0 when none ever was."""
        return max(self.cap_floor, self.ttl_floor)

    def is_dead(self, seq: int) -> bool:
        """Return whether a seq is gone, for any reason. Seqs not yet given out are dead too."""
        return seq < self.floor or seq > self.head_seq or (self.dead is not None and seq in self.dead)

    def dead_between(self, lo: int, hi: int) -> int:
        """Return how many seqs of ``[lo, hi)``, all at or above the floor, are gone."""
        return self.dead.range_cardinality(lo, hi) if self.dead else 0

    def live_runs(self, lo: int, hi: int) -> list[int]:
        """Return the live seqs of ``[lo, hi)`` as runs."""
        lo, hi = max(lo, self.floor), min(hi, self.head_seq + 1)
        if lo >= hi:
            return []
        if not self.dead_between(lo, hi):
            return [lo, hi - lo]
        assert self.dead is not None
        runs: list[int] = []
        while lo < hi:
            lo = first_absent(self.dead, lo)
            if lo >= hi:
                break
            end = self._next_dead(lo, hi)
            runs += (lo, end - lo)
            lo = end
        return runs

    def _next_dead(self, seq: int, hi: int) -> int:
        assert self.dead is not None
        return min(next(self.dead.iter_equal_or_larger(seq), hi), hi)

    def bury(self, lo: int, hi: int) -> None:
        """Mark ``[lo, hi)`` dead and keep ``floor`` on the first live seq (or one above the head)."""
        if lo <= self.floor:
            if hi <= self.floor:
                return
            self.floor = hi
            if self.dead:
                self._sink()
        else:
            if self.dead is None:
                self.dead = BitMap64()
            if hi - lo == 1:
                self.dead.add(lo)
            else:
                self.dead.add_range(lo, hi)
            if (lo - 1) >> _PACK_BITS != (hi - 1) >> _PACK_BITS:
                self._pack(lo, hi)
        if self.floor > self.head_seq:
            self._emptied()

    def _pack(self, lo: int, hi: int) -> None:
        """Keep runs of the dead as runs: buried one by one, 10⁹ seqs take 125 MB; as runs they take kilobytes.

        Packing costs what lies between floor and head, so the wider that is the fewer seqs bring it about, and every
        seq pays the same share. They are picked by their number alone: then a state that was written out and read back
        packs at the same events as one that lived on, and no count has to travel.
        """
        assert self.dead is not None
        bits = max(_PACK_BITS, (self.head_seq - self.floor).bit_length() - 6)
        if (lo - 1) >> bits != (hi - 1) >> bits:
            self.dead.run_optimize()

    def _sink(self) -> None:
        """Move the floor over what is dead right above it, and forget what lies below."""
        assert self.dead is not None
        if self.floor in self.dead:
            self.floor = first_absent(self.dead, self.floor)
        if self.dead.min() < self.floor:
            self.dead.remove_range(0, self.floor)
        if not self.dead:
            self.dead = None

    def _emptied(self) -> None:
        self.dead = self.tags = None
        if len(self.frame_index) > 1 or (self.frame_index and len(self.frame_index[0].firsts) > 256):
            self.frame_index = []

    def leave_out(self, count: int) -> None:
        """Leave out the next ``count`` seqs for good: the topic goes on after them, in a log of its own."""
        first_seq = self.head_seq + 1
        self.head_seq += count
        self.bury(first_seq, first_seq + count)
        self.recreated = (*self.recreated, first_seq, count)[-2 * RECREATED_MAX :]

    def cut_frames(self, lo: int, hi: int) -> None:
        """Forget the frames that start in ``[lo, hi)``; nothing alive is in them."""
        cut(self.frame_index, lo, hi)

    def drop_dead_segments(self) -> None:
        """Drop the index of segments whose every seq is dead."""
        while len(self.frame_index) > 1 and self.frame_index[1].firsts[0] <= self.floor:
            del self.frame_index[0]
