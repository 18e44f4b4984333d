"""Leases by deadline: which parts of leases end next.

A part is indexed under the deadline it has when it is added. An extend to a later deadline leaves the entry alone; the
part is indexed again when the old deadline comes up. So an extend, and an ack, cost nothing here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from tenure.core.state.lease import Lease

__all__ = ["LeasesByDeadline"]

_STALE_MIN: Final = 1_000
"""How many entries of parts that have ended may be kept even where they outnumber the others."""


class LeasesByDeadline:
    """Parts of leases under the deadline they were indexed with, and a heap of these deadlines.

    ``count`` counts the entries, those of ended parts included.
    """

    __slots__ = ("count", "deadlines_ms", "parts")

    def __init__(self) -> None:
        self.parts: dict[int, list[Lease]] = {}
        self.deadlines_ms: list[int] = []
        self.count = 0

    def add(self, part: Lease, living_count: int) -> None:
        """Index a part under its deadline. ``living_count`` is how many parts hold a job, this one included."""
        deadline_ms = part.indexed_ms = part.deadline_ms
        parts = self.parts.get(deadline_ms)
        if parts is None:
            self.parts[deadline_ms] = [part]
            heappush(self.deadlines_ms, deadline_ms)
        else:
            parts.append(part)
        self.count += 1
        if self.count > _STALE_MIN and self.count > 2 * living_count + _STALE_MIN:
            self._drop_stale()

    def pop(self) -> tuple[int, list[Lease]]:
        """Take out the earliest deadline; return it with the parts that still hold a job and are indexed there."""
        deadline_ms = heappop(self.deadlines_ms)
        parts = self.parts.pop(deadline_ms)
        self.count -= len(parts)
        return deadline_ms, [part for part in parts if part.left and part.indexed_ms == deadline_ms]

    def _drop_stale(self) -> None:
        """Drop the entries of parts that have ended, or that are indexed under another deadline now.

        This runs once they outnumber the living, so each entry costs the same however many there are.
        """
        for deadline_ms, parts in list(self.parts.items()):
            living = dict.fromkeys([part for part in parts if part.left and part.indexed_ms == deadline_ms])
            self.count -= len(parts) - len(living)
            if living:
                self.parts[deadline_ms] = list(living)
            else:
                del self.parts[deadline_ms]
        self.deadlines_ms = sorted(self.parts)
