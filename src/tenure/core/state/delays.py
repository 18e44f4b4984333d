"""Delayed jobs: which ones they are, and when each becomes claimable, in log or in wall time.

A job is found by the time at which it comes due and by its seq, so that one that is acked, deleted or parked while it
is delayed leaves both at once, and a listing can show when it comes due.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from pyroaring import BitMap64

from tenure.core.state.due_order import DueOrder
from tenure.core.state.seq_times import SeqTimes

__all__ = ["NEVER", "Delays"]

NEVER: Final = 1 << 62
"""A time that does not come."""
_SEQ_MASK: Final = (1 << 64) - 1


class Delays:
    """The delayed jobs of one queue. ``jobs`` are their seqs; the bitmap is changed in place, never replaced.

    ``by_log`` and ``by_wall`` are in the order of ``due_ms << 64 | seq``. ``_dues`` leads from a seq to its time, as
    ``due_ms << 1``, plus 1 for wall time.
    """

    __slots__ = ("_dues", "by_log", "by_wall", "jobs")

    def __init__(self) -> None:
        self.jobs = BitMap64()
        self.by_log = DueOrder()
        self.by_wall = DueOrder()
        self._dues = SeqTimes()

    def add(self, seq: int, due_ms: int) -> None:
        """Delay a job until log time reaches ``due_ms``."""
        self.jobs.add(seq)
        self.by_log.add(due_ms << 64 | seq)
        self._dues.put(seq, due_ms << 1)

    def add_wall(self, seq: int, due_ms: int) -> None:
        """Delay a job until wall time reaches ``due_ms``."""
        self.jobs.add(seq)
        self.by_wall.add(due_ms << 64 | seq)
        self._dues.put(seq, due_ms << 1 | 1)

    def restore(self, by_log: list[int], by_wall: list[int]) -> None:
        """Put the entries of a snapshot in place."""
        self.by_log, self.by_wall = DueOrder(sorted(by_log)), DueOrder(sorted(by_wall))
        dues = {entry & _SEQ_MASK: entry >> 64 << 1 for entry in by_log}
        dues |= {entry & _SEQ_MASK: entry >> 64 << 1 | 1 for entry in by_wall}
        self.jobs.update(dues)
        for seq, due in sorted(dues.items()):
            self._dues.put(seq, due)

    def living(self, entries: DueOrder) -> list[tuple[int, int]]:
        """Return (due_ms, seq) of the jobs that wait for one of the clocks, in order."""
        return [(entry >> 64, entry & _SEQ_MASK) for entry in entries]

    def due_times_ms(self, seqs: set[int], wall_offset_ms: int) -> dict[int, int]:
        """Return when these delayed jobs come due, in wall time."""
        dues = {seq: self._dues.get(seq) for seq in seqs if seq in self.jobs}
        return {seq: due >> 1 if due & 1 else (due >> 1) + wall_offset_ms for seq, due in dues.items()}

    def end(self, lo: int, hi: int) -> None:
        """Take the jobs of ``[lo, hi)`` out of the delayed ones, at the cost of those that are."""
        if not self.jobs:
            return
        ended = list(takewhile(hi.__gt__, self.jobs.iter_equal_or_larger(lo)))
        for seq in ended:
            due = self._dues.pop(seq)
            (self.by_wall if due & 1 else self.by_log).remove(due >> 1 << 64 | seq)
        self.jobs.remove_range(lo, hi)

    def pop_due(self, now_ms: int, *, wall_offset_ms: int, count_max: int) -> list[int]:
        """End the delays that are over at log time ``now_ms``, the first ``count_max`` of them; return their seqs."""
        due: list[int] = []
        for entries, until_ms in ((self.by_log, now_ms), (self.by_wall, now_ms + wall_offset_ms)):
            while entries and entries.first >> 64 <= until_ms and len(due) < count_max:
                entry = entries.first
                seq = entry & _SEQ_MASK
                entries.remove(entry)
                self._dues.pop(seq)
                self.jobs.remove(seq)
                due.append(seq)
        return due

    def next_ms(self, wall_offset_ms: int) -> int:
        """Return the log time at which the next job comes due, or NEVER."""
        log_ms = self.by_log.first >> 64 if self.by_log else NEVER
        if not self.by_wall:
            return log_ms
        wall_ms = (self.by_wall.first >> 64) - wall_offset_ms
        return wall_ms if wall_ms < log_ms else log_ms
