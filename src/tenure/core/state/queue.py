"""The folded state of a queue: leases, jobs to reclaim, delays, parked jobs; and the passing of time on it.

Every live seq is in exactly one place: fresh (at or above ``cursor``), in flight, waiting in ``reclaim``, waiting in
``suspects``, ``delayed`` or ``parked``. Expiry is a rule, not an event: ``pass_time`` ends the leases whose deadline
lies before the time it is given. It is called with the time of every event that is folded, so a replay ends the same
leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyroaring import BitMap64

from tenure.contract.config import Backoff
from tenure.core.events import Claimed
from tenure.core.state.deadlines import OwnDeadlines
from tenure.core.state.delays import NEVER, Delays
from tenure.core.state.deliveries import Delivery, EndedDeliveries
from tenure.core.state.expiry import end_leases
from tenure.core.state.lease import Ended, Lease
from tenure.core.state.lease_page import DEADLINE, SEQ
from tenure.core.state.lease_table import LeaseTable
from tenure.core.state.pasts import Past
from tenure.core.state.ranges import each
from tenure.core.state.step_budget import StepBudget
from tenure.core.state.suspects import SuspectLine

__all__ = ["IDLE", "NEVER", "Queue"]


class Queue:
    """The folded state of one queue.

    ``deliveries`` holds a count where it is above one, and for jobs that are not in flight also where it is one; a
    job in flight without an entry is on its first delivery. ``redelivered_max`` is the highest seq that was appended
    with a delivery count carried over from another queue. ``next_change_ms`` is the earliest log time at which time
    alone changes anything. ``in_flight`` has the row in ``leases`` that holds a job, ``own_deadlines`` the deadline of
    a job that was extended apart from its lease, ``claims`` the number of a lease by its claim id. ``delayed`` is
    ``delays.jobs``, within reach of a claim. ``copies`` names the dead letter of a parked job that has one, as
    ``topic id << 64 | seq``. ``suspects`` are the jobs whose worker was lost, with what is known of their past.
    """

    __slots__ = (
        "acked_max",
        "claims",
        "copies",
        "cursor",
        "dead_lettered",
        "delayed",
        "delays",
        "deliveries",
        "deliveries_ended",
        "expired",
        "in_flight",
        "leases",
        "lost",
        "next_change_ms",
        "own_deadlines",
        "parked",
        "reclaim",
        "redelivered_max",
        "suspects",
        "uniques",
        "uniques_by_seq",
    )

    def __init__(self) -> None:
        self.cursor = 1
        self.acked_max = 0
        self.dead_lettered = 0
        self.expired = 0
        self.lost = 0
        self.redelivered_max = 0
        self.next_change_ms = NEVER
        self.leases = LeaseTable()
        self.in_flight: dict[int, int] = {}
        self.own_deadlines = OwnDeadlines(self.in_flight)
        self.claims = self.leases.claims
        self.reclaim = BitMap64()
        self.delays = Delays()
        self.delayed = self.delays.jobs
        self.deliveries: dict[int, int] = {}
        self.deliveries_ended = EndedDeliveries()
        self.parked: dict[int, str] = {}
        self.copies: dict[int, int] = {}
        self.uniques: dict[str, int] = {}
        self.uniques_by_seq: dict[int, str] = {}
        self.suspects = SuspectLine()

    # Holding

    def hold(self, event: Claimed, group: str | None = None) -> None:
        """Put claimed jobs in flight: they leave the reclaim set, and count one delivery more. With a ``group`` their
        lease isolates.
        """
        runs, in_flight = event.runs, self.in_flight
        seq, beyond = runs[0], runs[-2] + runs[-1]
        if seq < self.cursor or seq <= self.redelivered_max:
            self._count_again(runs)
        row = self.leases.add(event, group)
        if beyond == seq + 1:
            in_flight[seq] = row
        else:
            for i in range(0, len(runs), 2):
                in_flight.update(dict.fromkeys(range(runs[i], runs[i] + runs[i + 1]), row))
        if beyond > self.cursor:
            self.cursor = self.suspects.pass_over(each(runs), cursor=self.cursor) if self.suspects.ahead else beyond
        if event.deadline_ms < self.next_change_ms:
            self.next_change_ms = event.deadline_ms + 1

    def _count_again(self, runs: list[int]) -> None:
        """Count a delivery of jobs that were delivered before, and take them out of the reclaim set."""
        deliveries, known = self.deliveries, max(self.cursor, self.redelivered_max + 1)
        for i in range(0, len(runs), 2):
            for seq in range(runs[i], min(runs[i] + runs[i + 1], known)):
                self.reclaim.discard(seq)
                if seq in deliveries:
                    deliveries[seq] += 1
                if self.suspects.ready:
                    self.suspects.ready.discard(seq)

    def tries(self, seq: int) -> int:
        """Return how many deliveries of a job count against ``max_deliveries``, one that is under way included."""
        count, pasts = self.deliveries.get(seq, 1 if seq in self.in_flight else 0), self.suspects.pasts
        return count - pasts.get(seq).spared if pasts.jobs else count

    def lease(self, number: int) -> Lease | None:
        """Return the lease of this number with the earliest deadline of its jobs, or None where it is over."""
        row = self.leases.row_of(number)
        if row is None:
            return None
        if row in self.leases.apart:
            return self._copy(row, min(self._deadline_ms(seq, row) for seq in self.each_of(row)))
        return self._copy(row)

    def holder(self, seq: int) -> Lease | None:
        """Return the lease of a job with its deadline, or None where it is not in flight."""
        row = self.in_flight.get(seq)
        return None if row is None else self._copy(row, self._deadline_ms(seq, row))

    def _copy(self, row: int, deadline_ms: int | None = None) -> Lease:
        number, since_ms, common_ms, _ = self.leases.cells(row)
        if deadline_ms is None:
            deadline_ms = common_ms
        return Lease(number, self.leases.node(row), since_ms, deadline_ms, self.leases.claim_ids.get(row))

    def _deadline_ms(self, seq: int, row: int) -> int:
        """Return the deadline of a job that a lease holds."""
        own_ms = self.own_deadlines.get(seq)
        if own_ms is not None:
            return own_ms
        return self.leases.cells(row)[DEADLINE]

    def held(self, number: int) -> list[int]:
        """Return the seqs still held under a lease number, ascending."""
        return list(self.each_held(number))

    def each_held(self, number: int) -> Iterator[int]:
        """Return the seqs still held under a lease number one by one, ascending."""
        row = self.leases.row_of(number)
        return iter(()) if row is None else self.each_of(row)

    def each_of(self, row: int) -> Iterator[int]:
        """Return the seqs that the lease of a row still holds, ascending; most hold what they started with."""
        runs = self.leases.runs.get(row)
        if runs is None:
            return iter((self.leases.cells(row)[SEQ],))
        if len(runs) == 2 and runs[1] == self.leases.left(row):
            return iter(range(runs[0], runs[0] + runs[1]))
        return (seq for seq in each(runs) if self.in_flight.get(seq) == row)

    def deadlines_of(self, row: int) -> Iterator[tuple[int, int]]:
        """Return each job that a lease still holds, ascending, with its deadline."""
        return ((seq, self._deadline_ms(seq, row)) for seq in self.each_of(row))

    def held_count(self, number: int) -> int:
        """Return how many jobs are still held under a lease number."""
        row = self.leases.row_of(number)
        return 0 if row is None else self.leases.left(row)

    def let_go(self, seq: int) -> Lease | None:
        """Take one job out of its lease, and return the lease; it is over where that was its last job."""
        lease = self.holder(seq)
        if lease is not None:
            self.take_out(seq, 1)
        return lease

    def take_out(self, lo: int, n: int) -> None:
        """Take a run of held jobs out of their leases, counting each lease once for neighbours that it holds."""
        in_flight, taken = self.in_flight, 1
        row = in_flight.pop(lo)
        if self.own_deadlines:
            self._forget_own(lo, n, row)
        if self.suspects.begun or self.suspects.ahead:
            self.suspects.release(lo, n)
        if n > 1:
            for seq in range(lo + 1, lo + n):
                holder = in_flight.pop(seq)
                if holder != row:
                    self.leases.reduce(row, taken)
                    row, taken = holder, 0
                taken += 1
        self.leases.reduce(row, taken)

    def _forget_own(self, lo: int, n: int, row: int) -> None:
        """Forget the deadlines that jobs have of their own; the first is in flight no more, and was held by ``row``."""
        own, apart = self.own_deadlines, self.leases.apart
        for seq in range(lo, lo + n):
            if own.pop(seq, None) is None:
                continue
            holder = row if seq == lo else self.in_flight[seq]
            apart[holder] -= 1
            if not apart[holder]:
                del apart[holder]

    def extend(self, runs: list[int], *, deadline_ms: int) -> None:
        """Give held jobs a new deadline: their lease, where these are all it holds, else each of them by itself."""
        groups: dict[int, list[int]] = {}
        for seq in each(runs):
            row = self.in_flight.get(seq)
            if row is not None:
                groups.setdefault(row, []).append(seq)
        for row, seqs in groups.items():
            if len(seqs) < self.leases.left(row):
                self.set_apart(row, seqs, deadline_ms)
                continue
            if self.leases.apart.pop(row, 0):
                for seq in seqs:
                    self.own_deadlines.pop(seq, None)
            self.leases.set_deadline(row, deadline_ms)
        self.next_change_ms = min(self.next_change_ms, deadline_ms + 1)

    def set_apart(self, row: int, seqs: Iterable[int], deadline_ms: int) -> None:
        """Give some jobs of a lease a deadline of their own."""
        own, apart = self.own_deadlines, self.leases.apart
        before = len(own)
        for seq in seqs:
            own.put(seq, deadline_ms)
        apart[row] = apart.get(row, 0) + len(own) - before

    # Waiting

    def make_ready_at(self, seq: int, due_ms: int, *, now_ms: int) -> None:
        """Make a job claimable at log time ``due_ms``: at once when that is not ahead."""
        if due_ms <= now_ms:
            self._make_ready(seq, now_ms)
            return
        self.delays.add(seq, due_ms)
        if due_ms < self.next_change_ms:
            self.next_change_ms = due_ms

    def _make_ready(self, seq: int, now_ms: int) -> None:
        """Put a job in line: a suspect among the suspects, another one to be reclaimed. Above the cursor it is simply
        fresh again.
        """
        if self.suspects.pasts.is_suspect(seq):
            self.suspects.add(seq, cursor=self.cursor, now_ms=now_ms)
        elif seq < self.cursor:
            self.reclaim.add(seq)

    def lose(self, seq: int) -> int:
        """Count a loss of a held job's worker; return after how many ms the job comes back."""
        self.lost += 1
        return self.suspects.lose(seq)

    def is_borrowed(self, group: str) -> bool:
        """Return whether the suspect that an ordinary claim of a group took last is still held by that group."""
        seq = self.suspects.borrowed.get(group, 0)
        row = self.in_flight.get(seq)
        return row is not None and self.leases.group(row) == group and self.suspects.pasts.is_suspect(seq)

    def note_losses(self, seq: int, count: int, *, now_ms: int) -> None:
        """Note that a job which was just appended was lost so often before, in another queue."""
        self.suspects.pasts.put(seq, Past(lost=count))
        self.redelivered_max = seq
        if seq not in self.delayed:
            self._make_ready(seq, now_ms)

    def forget_deliveries(self, seq: int) -> None:
        """Count the deliveries of a job from zero; a suspect stays one."""
        self.deliveries.pop(seq, None)
        self.suspects.count_from_zero(seq)

    def record_delivery(self, seq: int, delivery: Delivery) -> None:
        """Record a delivery that ended without an ack, and count it for the next one."""
        self.deliveries.setdefault(seq, 1)
        self.deliveries_ended.add(seq, delivery)

    def forget(self, seq: int) -> None:
        """Drop everything known of a job that is gone."""
        self.let_go(seq)
        self.reclaim.discard(seq)
        self.delays.end(seq, seq + 1)
        self.suspects.leave(seq)
        self.forget_details(seq)

    def forget_details(self, seq: int) -> None:
        """Drop the delivery count, ended deliveries, past, parking and unique key of a job."""
        self.deliveries.pop(seq, None)
        self.deliveries_ended.forget(seq)
        self.suspects.pasts.forget(seq)
        self.parked.pop(seq, None)
        self.copies.pop(seq, None)
        key = self.uniques_by_seq.pop(seq, None)
        if key is not None:
            del self.uniques[key]

    def park(self, seq: int, reason: str) -> None:
        """Park a job: it cannot be claimed until it is redriven."""
        self.reclaim.discard(seq)
        self.delays.end(seq, seq + 1)
        self.suspects.leave(seq)
        self.parked[seq] = reason

    def unpark(self, seq: int) -> None:
        """Put a parked job back into circulation; the caller makes it ready."""
        del self.parked[seq]
        self.copies.pop(seq, None)

    def forget_range(self, lo: int, hi: int) -> None:
        """Forget every seq in ``[lo, hi)``, at the cost of what is known of them."""
        self.reclaim.remove_range(lo, hi)
        self.delays.end(lo, hi)
        for known in (self.in_flight, self.deliveries, self.deliveries_ended, self.parked, self.uniques_by_seq):
            if not known:
                continue
            if hi - lo < len(known):
                seqs = [seq for seq in range(lo, hi) if seq in known]
            else:
                seqs = [seq for seq in known if lo <= seq < hi]
            for seq in seqs:
                self.forget(seq)
        if self.suspects.pasts.jobs:
            for seq in self.suspects.between(lo, hi):
                self.forget(seq)

    # Time

    def pass_time(
        self,
        now_ms: int,
        *,
        wall_offset_ms: int,
        backoff: Backoff | None,
        epoch: int = 0,
        ended: list[Ended] | None = None,
        jobs_max: int = 0,
    ) -> int:
        """Let log time reach ``now_ms``; returns the lowest seq that came back from a lease, or NEVER.

        A lease ends once ``now_ms`` is past its deadline, a delay once ``now_ms`` has reached it. Asking twice changes
        nothing. The log was last opened in ``epoch``: a lease from before that isolates and runs out says nothing about
        its worker, which may not have reached this broker since. With ``jobs_max`` it stops after about so many jobs,
        and ``next_change_ms`` is not above ``now_ms`` while there are more.
        """
        lowest, budget = NEVER, StepBudget(jobs_max or NEVER)
        while budget.left > 0 and self.next_deadline_ms() < now_ms:
            lowest = min(lowest, end_leases(self, backoff, ended, now_ms, budget, epoch=epoch))
        for seq in self.delays.pop_due(now_ms, wall_offset_ms=wall_offset_ms, count_max=budget.left):
            self._make_ready(seq, now_ms)
        self.plan(wall_offset_ms)
        return lowest

    def plan(self, wall_offset_ms: int) -> None:
        """Set ``next_change_ms`` from the leases and the delays."""
        self.next_change_ms = min(self.next_deadline_ms() + 1, self.delays.next_ms(wall_offset_ms), NEVER)

    def next_deadline_ms(self) -> int:
        """Return a time at or before the earliest deadline; NEVER where nothing is in flight."""
        return min(self.leases.next_ms, self.own_deadlines.next_ms)


IDLE: Final = Queue()
"""The shared state of every queue that never held a job.

Nothing changes it: the first append gives its topic a Queue of its own.
"""
