"""The folded state of a queue: leases, jobs to reclaim, delays, parked jobs; and the passing of time on it.

Every live seq is in exactly one place: fresh (at or above ``cursor``), in flight, waiting in ``reclaim``, ``delayed``
or ``parked``. Expiry is a rule, not an event: ``pass_time`` ends the leases whose deadline lies before the time it is
given. It is called with the time of every event that is folded, so a replay ends the same leases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyroaring import BitMap64

from tenure.contract.config import Backoff
from tenure.core.backoff import delay_ms
from tenure.core.state.deadlines import LeasesByDeadline
from tenure.core.state.delays import NEVER, Delays
from tenure.core.state.deliveries import Delivery, EndedDeliveries
from tenure.core.state.lease import Ended, Lease
from tenure.core.state.ranges import each, to_runs

__all__ = ["IDLE", "NEVER", "Queue"]


class Queue:
    """The folded state of one queue.

    ``deliveries`` holds a count where it is above one, and for jobs that are not in flight also where it is one; a
    job in flight without an entry is on its first delivery. ``redelivered_max`` is the highest seq that was appended
    with a delivery count carried over from another queue. ``next_change_ms`` is the earliest log time at which time
    alone changes anything. ``leases`` has the part that each claim started as, by number, ``in_flight`` the part that
    holds a job, ``parts`` the number of parts that hold one. ``delayed`` is ``delays.jobs``, within reach of a claim.
    ``copies`` names the dead letter of a parked job that has one, as ``topic id << 64 | seq``.
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
        "leases_by_deadline",
        "next_change_ms",
        "parked",
        "parts",
        "reclaim",
        "redelivered_max",
        "uniques",
        "uniques_by_seq",
    )

    def __init__(self) -> None:
        self.cursor = 1
        self.acked_max = 0
        self.dead_lettered = 0
        self.expired = 0
        self.redelivered_max = 0
        self.next_change_ms = NEVER
        self.leases: dict[int, Lease] = {}
        self.in_flight: dict[int, Lease] = {}
        self.parts = 0
        self.leases_by_deadline = LeasesByDeadline()
        self.claims: dict[str, int] = {}
        self.reclaim = BitMap64()
        self.delays = Delays()
        self.delayed = self.delays.jobs
        self.deliveries: dict[int, int] = {}
        self.deliveries_ended = EndedDeliveries()
        self.parked: dict[int, str] = {}
        self.copies: dict[int, int] = {}
        self.uniques: dict[str, int] = {}
        self.uniques_by_seq: dict[int, str] = {}

    # Holding

    def hold(self, lease: Lease) -> None:
        """Put the jobs of a lease in flight: they leave the reclaim set, and count one delivery more."""
        in_flight, runs = self.in_flight, lease.runs
        if runs[0] < self.cursor or runs[0] <= self.redelivered_max:
            self._count_again(runs)
        if len(runs) == 2 and runs[1] == 1:
            in_flight[runs[0]] = lease
        else:
            for i in range(0, len(runs), 2):
                in_flight.update(dict.fromkeys(range(runs[i], runs[i] + runs[i + 1]), lease))
        beyond = runs[-2] + runs[-1]
        if beyond > self.cursor:
            self.cursor = beyond
        self.leases[lease.number] = lease
        if lease.claim_id is not None:
            self.claims[lease.claim_id] = lease.number
        self.parts += 1
        self.leases_by_deadline.add(lease, self.parts)
        if lease.deadline_ms < self.next_change_ms:
            self.next_change_ms = lease.deadline_ms + 1

    def _count_again(self, runs: list[int]) -> None:
        """Count a delivery of jobs that were delivered before, and take them out of the reclaim set."""
        deliveries, known = self.deliveries, max(self.cursor, self.redelivered_max + 1)
        for i in range(0, len(runs), 2):
            for seq in range(runs[i], min(runs[i] + runs[i + 1], known)):
                self.reclaim.discard(seq)
                if seq in deliveries:
                    deliveries[seq] += 1

    def held(self, number: int) -> list[int]:
        """Return the seqs still held under a lease number, ascending."""
        return list(self.each_held(number))

    def each_held(self, number: int) -> Iterator[int]:
        """Return the seqs still held under a lease number one by one, ascending."""
        first, in_flight = self.leases.get(number), self.in_flight
        if first is None:
            return iter(())
        if not first.apart:
            return self._each_of(first)
        return (seq for seq in each(first.runs) if (part := in_flight.get(seq)) is not None and part.number == number)

    def _each_of(self, part: Lease) -> Iterator[int]:
        """Return the seqs that one part holds, ascending; most split-off parts hold one whole run."""
        in_flight, runs = self.in_flight, part.runs
        if len(runs) == 2 and runs[1] == part.left:
            return iter(range(runs[0], runs[0] + runs[1]))
        return (seq for seq in each(runs) if in_flight.get(seq) is part)

    def held_count(self, number: int) -> int:
        """Return how many jobs are still held under a lease number."""
        first = self.leases.get(number)
        return 0 if first is None else first.left + first.apart

    def deadline_ms(self, number: int) -> int:
        """Return the earliest deadline among the jobs held under the number of a lease that is not over."""
        first = self.leases[number]
        return (
            min(self.in_flight[seq].deadline_ms for seq in self.each_held(number)) if first.apart else first.deadline_ms
        )

    def let_go(self, seq: int) -> Lease | None:
        """Take one job out of its lease; a lease with nothing left is over."""
        lease = self.in_flight.pop(seq, None)
        if lease is not None:
            self.reduce(lease, 1)
        return lease

    def reduce(self, part: Lease, count: int) -> None:
        """Count off jobs that a part does not hold any more.

        A part ends with its last job, and a lease with its last part.
        """
        part.left -= count
        first = part.first
        if first is None:
            first = part
        else:
            first.apart -= count
        if part.left:
            return
        self.parts -= 1
        if first.left or first.apart:
            return
        del self.leases[first.number]
        if first.claim_id is not None and self.claims.get(first.claim_id) == first.number:
            del self.claims[first.claim_id]

    def extend(self, runs: list[int], *, deadline_ms: int) -> None:
        """Give held jobs a new deadline; a lease extended in part is split, under the same number."""
        groups: dict[Lease, list[int]] = {}
        for seq in each(runs):
            part = self.in_flight.get(seq)
            if part is not None:
                groups.setdefault(part, []).append(seq)
        for part, seqs in groups.items():
            if len(seqs) < part.left:
                self._split(part, seqs, deadline_ms=deadline_ms)
                continue
            part.deadline_ms = deadline_ms
            if deadline_ms < part.indexed_ms:
                self._index(part)

    def _split(self, part: Lease, seqs: list[int], *, deadline_ms: int) -> None:
        """Give some jobs of a part a deadline of their own.

        The smaller side becomes the new part. So a job moves at most as often as its lease can be halved, and all that
        is ever looked through for the parts of one lease stays in proportion to the jobs that it started with.
        """
        if 2 * len(seqs) <= part.left:
            self._split_off(part, seqs, deadline_ms=deadline_ms)
            return
        extended = set(seqs)
        rest, rest_deadline_ms = [seq for seq in self._each_of(part) if seq not in extended], part.deadline_ms
        part.deadline_ms = deadline_ms
        if deadline_ms < part.indexed_ms:
            self._index(part)
        self._split_off(part, rest, deadline_ms=rest_deadline_ms)

    def _split_off(self, part: Lease, seqs: list[int], *, deadline_ms: int) -> None:
        first = part if part.first is None else part.first
        new = Lease(part.number, part.node, part.since_ms, deadline_ms, len(seqs), to_runs(seqs), None, first)
        part.left -= len(seqs)
        if first is part:
            first.apart += len(seqs)
        self.in_flight.update(dict.fromkeys(seqs, new))
        self.parts += 1
        self._index(new)

    def _index(self, part: Lease) -> None:
        """Index a part under its deadline, and plan for it."""
        self.leases_by_deadline.add(part, self.parts)
        self.next_change_ms = min(self.next_change_ms, part.deadline_ms + 1)

    # Waiting

    def make_ready_at(self, seq: int, due_ms: int, *, now_ms: int) -> None:
        """Make a job claimable at log time ``due_ms``: at once when that is not ahead."""
        if due_ms <= now_ms:
            if seq < self.cursor:
                self.reclaim.add(seq)
            return
        self.delays.add(seq, due_ms)
        if due_ms < self.next_change_ms:
            self.next_change_ms = due_ms

    def record_delivery(self, seq: int, delivery: Delivery) -> None:
        """Record a delivery that ended without an ack, and count it for the next one."""
        self.deliveries.setdefault(seq, 1)
        self.deliveries_ended.add(seq, delivery)

    def forget(self, seq: int) -> None:
        """Drop everything known of a job that is gone."""
        self.let_go(seq)
        self.reclaim.discard(seq)
        self.delays.end(seq, seq + 1)
        self.forget_details(seq)

    def forget_details(self, seq: int) -> None:
        """Drop the delivery count, ended deliveries, parking and unique key of a job."""
        self.deliveries.pop(seq, None)
        self.deliveries_ended.forget(seq)
        self.parked.pop(seq, None)
        self.copies.pop(seq, None)
        key = self.uniques_by_seq.pop(seq, None)
        if key is not None:
            del self.uniques[key]

    def park(self, seq: int, reason: str) -> None:
        """Park a job: it cannot be claimed until it is redriven."""
        self.reclaim.discard(seq)
        self.delays.end(seq, seq + 1)
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

    # Time

    def pass_time(
        self,
        now_ms: int,
        *,
        wall_offset_ms: int,
        backoff: Backoff | None,
        ended: list[Ended] | None = None,
        jobs_max: int = 0,
    ) -> int:
        """Let log time reach ``now_ms``; returns the lowest seq that came back from a lease, or NEVER.

        A lease ends once ``now_ms`` is past its deadline, a delay once ``now_ms`` has reached it. Asking twice changes
        nothing. With ``jobs_max`` it stops after about so many jobs, and ``next_change_ms`` is not above ``now_ms``
        while there are more.
        """
        lowest, left = NEVER, jobs_max or NEVER
        while left > 0 and self.leases_by_deadline.deadlines_ms and self.leases_by_deadline.deadlines_ms[0] < now_ms:
            first, count = self._end_leases(backoff, ended, now_ms, jobs_max=left)
            lowest, left = min(lowest, first), left - count
        for seq in self.delays.pop_due(now_ms, wall_offset_ms=wall_offset_ms, count_max=left):
            if seq < self.cursor:  # above the cursor it is simply fresh again
                self.reclaim.add(seq)
        self.plan(wall_offset_ms)
        return lowest

    def plan(self, wall_offset_ms: int) -> None:
        """Set ``next_change_ms`` from the leases and the delays."""
        deadlines_ms = self.leases_by_deadline.deadlines_ms
        next_deadline_ms = deadlines_ms[0] + 1 if deadlines_ms else NEVER
        self.next_change_ms = min(next_deadline_ms, self.delays.next_ms(wall_offset_ms))

    def _end_leases(
        self, backoff: Backoff | None, ended: list[Ended] | None, now_ms: int, *, jobs_max: int
    ) -> tuple[int, int]:
        """End the parts indexed under the earliest deadline, which has passed, or index those again that were extended.

        An extended part is indexed again even if it ran out too, so that leases always end in the order of their
        deadlines, those of one deadline in the order they were given. After about ``jobs_max`` jobs the others are
        indexed as they were. Return the lowest seq that came back, or NEVER, and how many jobs and parts were touched.
        """
        lowest, expired, touched = NEVER, self.expired, 0
        deadline_ms, ending = self.leases_by_deadline.pop()
        if len(ending) > 1:
            ending = sorted(dict.fromkeys(ending), key=self._rank)
        for part in ending:
            if part.deadline_ms > deadline_ms or touched + self.expired - expired >= jobs_max:
                self._index(part)
            else:
                lowest = min(lowest, self._expire(part, backoff, ended, now_ms))
            touched += 1
        return lowest, 1 + touched + self.expired - expired

    def _rank(self, part: Lease) -> tuple[int, int]:
        """Rank parts of one lease by what they still hold: a snapshot does not contain what they held before."""
        if part.first is None and not part.apart:
            return part.number, 0
        return part.number, next(self._each_of(part))

    def _expire(self, part: Lease, backoff: Backoff | None, ended: list[Ended] | None, now_ms: int) -> int:
        seqs, in_flight = list(self._each_of(part)), self.in_flight
        delivery = Delivery(part.number, part.node, part.since_ms, part.deadline_ms, "expired")
        for seq in seqs:
            del in_flight[seq]
            self.record_delivery(seq, delivery)
            if backoff is None:
                self.reclaim.add(seq)
            else:
                due_ms = part.deadline_ms + delay_ms(backoff, deliveries=self.deliveries[seq], seq=seq)
                self.make_ready_at(seq, due_ms, now_ms=now_ms)
        self.reduce(part, part.left)
        self.expired += len(seqs)
        if ended is not None:
            ended.append(Ended(part.number, part.node, part.deadline_ms, to_runs(seqs)))
        return seqs[0]


IDLE: Final = Queue()
"""The shared state of every queue that never held a job.

Nothing changes it: the first append gives its topic a Queue of its own.
"""
