"""Delayed jobs: which ones they are, and when each becomes claimable, in log or in wall time.

A heap cannot lose an entry from its middle. The entry of a job that is acked, deleted or parked while it is delayed
stays until it comes up or until such stale entries outnumber the others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from pyroaring import BitMap64

__all__ = ["NEVER", "Delays"]

NEVER: Final = 1 << 62
"""A time that does not come."""
_SEQ_MASK: Final = (1 << 64) - 1
_STALE_MIN: Final = 1_000
"""How many stale entries may be kept even where they outnumber the others."""


class Delays:
    """The delayed jobs of one queue. ``jobs`` are their seqs; the bitmap is changed in place, never replaced.

    ``by_log`` and ``by_wall`` are heaps of ``due_ms << 64 | seq``; ``stale`` counts their entries for jobs that are not
    delayed any more.
    """

    __slots__ = ("by_log", "by_wall", "jobs", "stale")

    def __init__(self) -> None:
        self.jobs = BitMap64()
        self.by_log: list[int] = []
        self.by_wall: list[int] = []
        self.stale = 0

    def add(self, seq: int, due_ms: int) -> None:
        """Delay a job until log time reaches ``due_ms``."""
        self.jobs.add(seq)
        heappush(self.by_log, due_ms << 64 | seq)

    def add_wall(self, seq: int, due_ms: int) -> None:
        """Delay a job until wall time reaches ``due_ms``."""
        self.jobs.add(seq)
        heappush(self.by_wall, due_ms << 64 | seq)

    def restore(self, by_log: list[int], by_wall: list[int]) -> None:
        """Put the entries of a snapshot in place, none of them stale."""
        heapify(by_log)
        heapify(by_wall)
        self.by_log, self.by_wall = by_log, by_wall
        self.jobs.update(entry & _SEQ_MASK for entries in (by_log, by_wall) for entry in entries)

    def living(self, entries: list[int]) -> list[tuple[int, int]]:
        """Return (due_ms, seq) of the entries of a heap that are not stale, in order."""
        return [(entry >> 64, entry & _SEQ_MASK) for entry in sorted(entries) if entry & _SEQ_MASK in self.jobs]

    def due_times_ms(self, seqs: set[int], wall_offset_ms: int) -> dict[int, int]:
        """Return when these delayed jobs come due, in wall time; both heaps are gone through once."""
        dues_ms = {e & _SEQ_MASK: (e >> 64) + wall_offset_ms for e in self.by_log if e & _SEQ_MASK in seqs}
        return dues_ms | {e & _SEQ_MASK: e >> 64 for e in self.by_wall if e & _SEQ_MASK in seqs}

    def end(self, lo: int, hi: int) -> None:
        """Take the jobs of ``[lo, hi)`` out of the delayed ones.

        Their entries go once they outnumber the others, so that each costs the same, and at once where no others are.
        """
        ended = self.jobs.range_cardinality(lo, hi) if self.jobs else 0
        if not ended:
            return
        self.jobs.remove_range(lo, hi)
        self.stale += ended
        living = len(self.by_log) + len(self.by_wall) - self.stale
        if self.stale > living and (self.stale > _STALE_MIN or not living):
            self.by_log = sorted(entry for entry in self.by_log if entry & _SEQ_MASK in self.jobs)
            self.by_wall = sorted(entry for entry in self.by_wall if entry & _SEQ_MASK in self.jobs)
            self.stale = 0

    def pop_due(self, now_ms: int, *, wall_offset_ms: int) -> list[int]:
        """End the delays that are over at log time ``now_ms``; return the seqs of their jobs."""
        due: list[int] = []
        while self.by_log and self.by_log[0] >> 64 <= now_ms:
            self._pop(self.by_log, due)
        while self.by_wall and self.by_wall[0] >> 64 <= now_ms + wall_offset_ms:
            self._pop(self.by_wall, due)
        return due

    def _pop(self, heap: list[int], due: list[int]) -> None:
        seq = heappop(heap) & _SEQ_MASK
        if seq in self.jobs:
            self.jobs.remove(seq)
            due.append(seq)
        else:
            self.stale -= 1

    def next_ms(self, wall_offset_ms: int) -> int:
        """Return the log time at which the next entry comes up, or NEVER."""
        return min(
            self.by_log[0] >> 64 if self.by_log else NEVER,
            (self.by_wall[0] >> 64) - wall_offset_ms if self.by_wall else NEVER,
        )
