"""Deadlines of jobs that were extended apart from the rest of their lease."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from tenure.core.state.delays import NEVER
from tenure.core.state.step_budget import StepBudget

__all__ = ["OwnDeadlines"]

_MASK: Final = (1 << 64) - 1
_STALE_MIN: Final = 1_000
"""How many stale entries may be kept even where they outnumber the others."""


class OwnDeadlines(dict[int, int]):
    """The deadline of each such job by seq. It is a dict itself because every ack asks whether there are any.

    ``heap`` holds ``deadline_ms << 128 | row << 64 | seq``, at least one entry at or before the deadline of each job,
    so that jobs of one deadline come up in the order of their leases. An extend to a later deadline leaves the entry
    alone; it is pushed again when the old deadline comes up. ``rows`` has the row of the lease of each job in flight.
    """

    __slots__ = ("_rows", "heap")

    def __init__(self, rows: Mapping[int, int]) -> None:
        super().__init__()
        self._rows = rows
        self.heap: list[int] = []

    @property
    def next_ms(self) -> int:
        """Return a time at or before the earliest deadline; NEVER without a job."""
        return self.heap[0] >> 128 if self.heap else NEVER

    def put(self, seq: int, deadline_ms: int) -> None:
        """Give a job a deadline of its own."""
        before_ms = self.get(seq)
        self[seq] = deadline_ms
        if before_ms is None or deadline_ms < before_ms:
            heappush(self.heap, self._entry(seq, deadline_ms))
            if len(self.heap) > 2 * len(self) + _STALE_MIN:
                self.heap = [self._entry(job, at_ms) for job, at_ms in self.items()]
                heapify(self.heap)

    def _entry(self, seq: int, deadline_ms: int) -> int:
        return (deadline_ms << 64 | self._rows[seq]) << 64 | seq

    def next_row(self, deadline_ms: int, budget: StepBudget) -> int | None:
        """Return the row of the first job whose deadline is ``deadline_ms``, the earliest of all; None without one, or
        where the budget is used up.
        """
        heap = self.heap
        while heap and heap[0] >> 128 <= deadline_ms and budget.left > 0:
            seq, row = heap[0] & _MASK, heap[0] >> 64 & _MASK
            at_ms = self.get(seq, NEVER)
            if at_ms <= deadline_ms and self._rows[seq] == row:
                return row
            budget.left -= 1
            heappop(heap)
            if at_ms < NEVER:
                heappush(heap, self._entry(seq, at_ms))
        return None

    def take_due(self, row: int, deadline_ms: int, budget: StepBudget) -> list[int]:
        """Return jobs of the lease that `next_row` named, ascending, within the budget; the caller ends them."""
        due: list[int] = []
        while len(due) < budget.left and self.next_row(deadline_ms, budget) == row:
            seq = heappop(self.heap) & _MASK
            if not due or due[-1] != seq:
                due.append(seq)
        return due
