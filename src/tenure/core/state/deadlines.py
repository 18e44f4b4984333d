"""Deadlines of jobs that were extended apart from the rest of their lease."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from tenure.core.state.delays import NEVER

__all__ = ["OwnDeadlines"]

_SEQ_MASK: Final = (1 << 64) - 1
_STALE_MIN: Final = 1_000
"""How many stale entries may be kept even where they outnumber the others."""


class OwnDeadlines(dict[int, int]):
    """The deadline of each such job by seq. It is a dict itself because every ack asks whether there are any.

    ``heap`` holds ``deadline_ms << 64 | seq``, at least one entry at or before the deadline of each job. An extend to a
    later deadline leaves the entry alone; it is pushed again when the old deadline comes up.
    """

    __slots__ = ("heap",)

    def __init__(self) -> None:
        super().__init__()
        self.heap: list[int] = []

    @property
    def next_ms(self) -> int:
        """Return a time at or before the earliest deadline; NEVER without a job."""
        return self.heap[0] >> 64 if self.heap else NEVER

    def put(self, seq: int, deadline_ms: int) -> None:
        """Give a job a deadline of its own."""
        before_ms = self.get(seq)
        self[seq] = deadline_ms
        if before_ms is None or deadline_ms < before_ms:
            self.index(seq, deadline_ms)
            if len(self.heap) > 2 * len(self) + _STALE_MIN:
                self.heap = [at_ms << 64 | job for job, at_ms in self.items()]
                heapify(self.heap)

    def index(self, seq: int, deadline_ms: int) -> None:
        """Add an entry for a job, at its deadline."""
        heappush(self.heap, deadline_ms << 64 | seq)

    def take_due(self, deadline_ms: int) -> list[int]:
        """Return the jobs whose deadline is ``deadline_ms`` or before; the caller ends their leases."""
        heap, due = self.heap, dict[int, None]()
        while heap and heap[0] >> 64 <= deadline_ms:
            entry = heappop(heap)
            while heap and heap[0] == entry:
                heappop(heap)
            seq = entry & _SEQ_MASK
            at_ms = self.get(seq, NEVER)
            if at_ms <= deadline_ms:
                due[seq] = None
            elif at_ms < NEVER:
                heappush(heap, at_ms << 64 | seq)
        return list(due)
