"""The suspects of one queue: jobs whose worker was lost since the last verdict on them.

They wait in a line of their own, so that one more loss takes no healthy job with it. Which claims may have one is
decided in `tenure.core.suspects`; here is what a fold knows of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import takewhile
from typing import Final

from pyroaring import BitMap64

from tenure.core.state.pasts import Past, Pasts

__all__ = ["REDRIVEN_LOST_MAX", "SuspectLine"]

REDRIVEN_LOST_MAX: Final = 2
"""How many losses a job keeps whose deliveries are counted from zero: it is a suspect that runs alone, and not at once
parked again.
"""


class SuspectLine:
    """The suspects of a queue, and the pasts that make a job one.

    ``pasts`` has the jobs that were returned or lost; those that were lost since their last verdict wait in ``ready``,
    unless they are held, delayed or parked. ``ahead`` are suspects at or above the cursor, ready or in flight: they are
    not fresh. ``begun`` are held jobs that their worker began: when, and after how many ms they come back if it is
    lost.

    Not in a snapshot: ``since_ms`` is when the first of them began to wait, or a claim for suspects last took one;
    ``borrowed`` is the suspect that an ordinary claim of a group took last. Both only decide whether a claim may have a
    suspect.
    """

    __slots__ = ("ahead", "begun", "borrowed", "pasts", "ready", "since_ms")

    def __init__(self) -> None:
        self.pasts = Pasts()
        self.ready = BitMap64()
        self.ahead = BitMap64()
        self.begun: dict[int, tuple[int, int]] = {}
        self.since_ms = 0
        self.borrowed: dict[str, int] = {}

    # The line

    def add(self, seq: int, *, cursor: int, now_ms: int) -> None:
        """Put a suspect in line."""
        if not self.ready:
            self.since_ms = now_ms
        self.ready.add(seq)
        if seq >= cursor:
            self.ahead.add(seq)

    def leave(self, seq: int) -> None:
        """Take a job out of the line, if it waits there."""
        self.ready.discard(seq)
        self.ahead.discard(seq)

    def release(self, lo: int, n: int) -> None:
        """Forget what is known of a run of jobs only as long as they are held."""
        for seq in range(lo, lo + n):
            self.begun.pop(seq, None)
            self.ahead.discard(seq)

    def pass_over(self, seqs: Iterable[int], *, cursor: int) -> int:
        """Return the cursor behind the last of these claimed jobs that was fresh."""
        cursor = max([cursor, *(seq + 1 for seq in seqs if seq not in self.ahead)])
        self.ahead.remove_range(0, cursor)
        return cursor

    def restore(self, *, cursor: int, held: Container[int], delayed: BitMap64, parked: Container[int]) -> None:
        """Put the suspects in line after their pasts were loaded, but for those that are delayed or parked."""
        for seq in self.pasts:
            if not self.pasts.is_suspect(seq) or seq in delayed or seq in parked:
                continue
            if seq not in held:
                self.ready.add(seq)
            if seq >= cursor:
                self.ahead.add(seq)

    # Pasts

    def spare(self, seq: int) -> None:
        """Count a delivery as no try."""
        past = self.pasts.get(seq)
        self.pasts.put(seq, past._replace(spared=past.spared + 1))

    def lose(self, seq: int) -> int:
        """Count a loss of a held job's worker; return after how many ms the job comes back. It was a try only if the
        job was begun.
        """
        past, begun = self.pasts.get(seq), self.begun.get(seq)
        if begun is None:
            self.pasts.put(seq, past._replace(spared=past.spared + 1, lost=past.lost + 1))
            return 0
        self.pasts.put(seq, past._replace(lost=past.lost + 1, begun=past.begun + 1))
        return begun[1]

    def clear(self, seq: int) -> None:
        """Note a verdict on a job: it is no suspect any more."""
        if seq in self.pasts.jobs:
            self.pasts.put(seq, Past(self.pasts.get(seq).spared))

    def count_from_zero(self, seq: int) -> None:
        """Count the deliveries of a job from zero; a suspect stays one."""
        self.pasts.put(seq, Past(lost=min(self.pasts.get(seq).lost, REDRIVEN_LOST_MAX)))

    def between(self, lo: int, hi: int) -> list[int]:
        """Return the jobs in ``[lo, hi)`` that have a past, ascending."""
        return list(takewhile(hi.__gt__, self.pasts.jobs.iter_equal_or_larger(lo)))
