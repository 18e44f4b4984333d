"""Who holds what: the folded state of a queue, and the passing of time on it.

Every live seq is in exactly one place: fresh (at or above ``cursor``), in flight, waiting in ``reclaim``, ``delayed``
or ``parked``. Expiry is a rule, not an event: ``pass_time`` ends the leases whose deadline lies before the time it is
given, and it is called with the time of every event that is folded, so a replay ends the same leases.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec
from pyroaring import BitMap64

from tenure.core.backoff import delay_ms
from tenure.core.config import Backoff
from tenure.core.ranges import each, to_runs

__all__ = ["DELIVERIES_KEPT", "HISTORIES_KEPT", "IDLE", "NEVER", "Delivery", "Ended", "Lease", "Queue"]

NEVER: Final = 1 << 62
HISTORIES_KEPT: Final = 10_000
"""How many jobs of a queue keep the story of their failed deliveries; the oldest stories go first."""
DELIVERIES_KEPT: Final = 32
"""How many deliveries of one job are kept."""
_LOW: Final = (1 << 64) - 1
_STALE_MIN: Final = 1_000


class Lease(msgspec.Struct, gc=False, eq=False):
    """One claim's hold on jobs. ``left`` counts those still held; ``queued`` is the deadline it is watched under.

    An extend of only some of the jobs splits them off into a lease of the same number, reached through ``sibling``.
    """

    number: int
    node: str
    since: int
    deadline: int
    left: int
    runs: list[int]
    claim_id: str | None = None
    sibling: Lease | None = None
    queued: int = 0


class Delivery(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A delivery that ended without an ack; ``end`` is expired, nack or disconnect."""

    lease: int
    node: str
    since: int
    until: int
    end: str
    reason: str | None = None


class Ended(NamedTuple):
    """A lease that ran out, for whoever follows the queue's life."""

    lease: int
    node: str
    deadline: int
    runs: list[int]


class Queue:
    """The folded state of one queue.

    ``deliveries`` holds a count where it is above one, and for jobs that are not in flight also where it is one; a
    job in flight without an entry is on its first delivery. ``seasoned_max`` is the highest seq that was appended
    with a count from an earlier life. ``next_at`` is the earliest log time at which time alone changes anything.
    ``watched`` holds leases by the deadline they are watched under, ``watches`` counts them, ended ones included.
    """

    __slots__ = (
        "acked_max",
        "claims",
        "cursor",
        "dead_lettered",
        "deadlines",
        "delayed",
        "delays",
        "deliveries",
        "expired",
        "histories",
        "in_flight",
        "leases",
        "next_at",
        "parked",
        "reclaim",
        "seasoned_max",
        "uniques",
        "uniques_by_seq",
        "wall_delays",
        "watched",
        "watches",
    )

    def __init__(self) -> None:
        self.cursor = 1
        self.acked_max = 0
        self.dead_lettered = 0
        self.expired = 0
        self.seasoned_max = 0
        self.next_at = NEVER
        self.leases: dict[int, Lease] = {}
        self.in_flight: dict[int, Lease] = {}
        self.deadlines: list[int] = []
        self.watched: dict[int, list[Lease]] = {}
        self.watches = 0
        self.reclaim = BitMap64()
        self.delayed = BitMap64()
        self.delays: list[int] = []
        self.wall_delays: list[int] = []
        self.deliveries: dict[int, int] = {}
        self.parked: dict[int, str] = {}
        self.histories: dict[int, list[Delivery]] = {}
        self.claims: dict[str, int] = {}
        self.uniques: dict[str, int] = {}
        self.uniques_by_seq: dict[int, str] = {}

    # Holding

    def hold(self, lease: Lease) -> None:
        """Put a lease's jobs in flight; they leave wherever they waited, and count one delivery more."""
        in_flight, runs = self.in_flight, lease.runs
        if runs[0] < self.cursor or runs[0] <= self.seasoned_max:
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
        self._watch(lease)

    def _count_again(self, runs: list[int]) -> None:
        """Jobs with a past: they leave the reclaim set, and their count goes up where they had one."""
        deliveries, known = self.deliveries, max(self.cursor, self.seasoned_max + 1)
        for i in range(0, len(runs), 2):
            for seq in range(runs[i], min(runs[i] + runs[i + 1], known)):
                self.reclaim.discard(seq)
                if seq in deliveries:
                    deliveries[seq] += 1

    def _watch(self, lease: Lease) -> None:
        deadline = lease.queued = lease.deadline
        watched = self.watched.get(deadline)
        if watched is None:
            self.watched[deadline] = [lease]
            heappush(self.deadlines, deadline)
            if deadline < self.next_at:
                self.next_at = deadline + 1
        else:
            watched.append(lease)
        self.watches += 1
        if self.watches > _STALE_MIN and self.watches > 2 * len(self.leases) + _STALE_MIN:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Leases that ended early are still watched: let go of them once they outnumber the living."""
        living = [part for first in self.leases.values() for part in _chain(first)]
        self.watched = {}
        for lease in living:
            self.watched.setdefault(lease.queued, []).append(lease)
        self.deadlines = sorted(self.watched)
        self.watches = len(living)

    def held(self, number: int) -> list[int]:
        """The seqs still held under a lease number, ascending."""
        seqs: list[int] = []
        part = self.leases.get(number)
        while part is not None:
            seqs += [seq for seq in each(part.runs) if self.in_flight.get(seq) is part]
            part = part.sibling
        seqs.sort()
        return seqs

    def let_go(self, seq: int) -> Lease | None:
        """Take one job out of its lease; a lease with nothing left is over."""
        lease = self.in_flight.pop(seq, None)
        if lease is not None:
            lease.left -= 1
            if not lease.left:
                self.end(lease)
        return lease

    def end(self, lease: Lease) -> None:
        """A part of a lease holds nothing any more; with its last part the lease is over."""
        first = self.leases[lease.number]
        if first is lease and lease.sibling is None:
            del self.leases[lease.number]
            if lease.claim_id is not None and self.claims.get(lease.claim_id) == lease.number:
                del self.claims[lease.claim_id]
            return
        parts = [part for part in _chain(first) if part.left]
        if not parts:
            del self.leases[lease.number]
            if first.claim_id is not None and self.claims.get(first.claim_id) == lease.number:
                del self.claims[first.claim_id]
            return
        for part, follower in zip(parts, [*parts[1:], None], strict=True):
            part.sibling = follower
        parts[0].claim_id = first.claim_id
        self.leases[lease.number] = parts[0]

    def extend(self, runs: list[int], *, deadline: int) -> None:
        """Give held jobs a new deadline; a lease extended in part is split, under the same number."""
        groups: dict[int, list[int]] = {}
        for seq in each(runs):
            lease = self.in_flight.get(seq)
            if lease is not None:
                groups.setdefault(id(lease), []).append(seq)
        for seqs in groups.values():
            lease = self.in_flight[seqs[0]]
            if len(seqs) == lease.left:
                lease.deadline = deadline
            else:
                lease = self._split(lease, seqs, deadline=deadline)
            if deadline < lease.queued or not lease.queued:
                self._watch(lease)

    def _split(self, lease: Lease, seqs: list[int], *, deadline: int) -> Lease:
        part = Lease(lease.number, lease.node, lease.since, deadline, len(seqs), to_runs(seqs), None, lease.sibling, 0)
        lease.sibling = part
        lease.left -= len(seqs)
        self.in_flight.update(dict.fromkeys(seqs, part))
        return part

    # Waiting

    def wait(self, seq: int, due: int, *, now: int) -> None:
        """Make a job claimable at log time ``due``: at once when that is not ahead."""
        if due <= now:
            if seq < self.cursor:
                self.reclaim.add(seq)
            return
        self.delayed.add(seq)
        heappush(self.delays, due << 64 | seq)
        if due < self.next_at:
            self.next_at = due
        if len(self.delays) > _STALE_MIN and len(self.delays) > 2 * len(self.delayed) + _STALE_MIN:
            self.delays = sorted(entry for entry in self.delays if entry & _LOW in self.delayed)

    def remember(self, seq: int, delivery: Delivery) -> None:
        """Keep the story of a delivery that failed, and count it for the next one."""
        self.deliveries.setdefault(seq, 1)
        story = self.histories.pop(seq, None)
        if story is None:
            story = []
            if len(self.histories) >= HISTORIES_KEPT:
                del self.histories[next(iter(self.histories))]
        story.append(delivery)
        del story[:-DELIVERIES_KEPT]
        self.histories[seq] = story

    def forget(self, seq: int) -> None:
        """Drop everything known of a job that is gone."""
        self.let_go(seq)
        self.reclaim.discard(seq)
        self.delayed.discard(seq)
        self.forget_stories(seq)

    def forget_stories(self, seq: int) -> None:
        """Drop what is known of a job beyond where it waits."""
        self.deliveries.pop(seq, None)
        self.histories.pop(seq, None)
        self.parked.pop(seq, None)
        key = self.uniques_by_seq.pop(seq, None)
        if key is not None:
            del self.uniques[key]

    def park(self, seq: int, reason: str) -> None:
        """Take a job out of circulation until somebody redrives it."""
        self.reclaim.discard(seq)
        self.delayed.discard(seq)
        self.parked[seq] = reason

    def forget_range(self, lo: int, hi: int) -> None:
        """``forget`` for every seq in ``[lo, hi)``, at the cost of what is known of them."""
        self.reclaim.remove_range(lo, hi)
        self.delayed.remove_range(lo, hi)
        for known in (self.in_flight, self.deliveries, self.histories, self.parked, self.uniques_by_seq):
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
        self, now: int, *, wall_offset_ms: int, backoff: Backoff | None, ended: list[Ended] | None = None
    ) -> int:
        """Let log time reach ``now``; returns the lowest seq that came back from a lease, or NEVER.

        A lease ends once ``now`` is past its deadline, a delay once ``now`` has reached it. Asking twice changes
        nothing.
        """
        lowest = NEVER
        while self.deadlines and self.deadlines[0] < now:
            lowest = min(lowest, self._meet_deadline(heappop(self.deadlines), backoff, ended, now))
        while self.delays and self.delays[0] >> 64 <= now:
            self._come_due(heappop(self.delays) & _LOW)
        while self.wall_delays and self.wall_delays[0] >> 64 <= now + wall_offset_ms:
            self._come_due(heappop(self.wall_delays) & _LOW)
        self.plan(wall_offset_ms)
        return lowest

    def plan(self, wall_offset_ms: int) -> None:
        """Set ``next_at`` from what waits."""
        self.next_at = min(
            self.deadlines[0] + 1 if self.deadlines else NEVER,
            self.delays[0] >> 64 if self.delays else NEVER,
            (self.wall_delays[0] >> 64) - wall_offset_ms if self.wall_delays else NEVER,
        )

    def _come_due(self, seq: int) -> None:
        if seq in self.delayed:
            self.delayed.remove(seq)
            if seq < self.cursor:  # above the cursor it is simply fresh again
                self.reclaim.add(seq)

    def _meet_deadline(self, deadline: int, backoff: Backoff | None, ended: list[Ended] | None, now: int) -> int:
        """A deadline came up: the leases watched under it end, or are watched anew where they were extended.

        An extended one is watched again even if it ran out too, so that leases always end in the order of their
        deadlines, those of one deadline in the order they were given.
        """
        lowest = NEVER
        watched = self.watched.pop(deadline)
        self.watches -= len(watched)
        ending = [lease for lease in watched if lease.queued == deadline and lease.left]
        for lease in sorted(ending, key=self._rank):
            if lease.deadline > deadline:
                self._watch(lease)
            else:
                lowest = min(lowest, self._expire(lease, backoff, ended, now))
        return lowest

    def _rank(self, lease: Lease) -> tuple[int, int]:
        """Parts of one lease rank by what they still hold: what they held before, a snapshot does not tell."""
        return lease.number, next(seq for seq in each(lease.runs) if self.in_flight.get(seq) is lease)

    def _expire(self, lease: Lease, backoff: Backoff | None, ended: list[Ended] | None, now: int) -> int:
        seqs = [seq for seq in each(lease.runs) if self.in_flight.get(seq) is lease]
        if not seqs:
            return NEVER
        story = Delivery(lease.number, lease.node, lease.since, lease.deadline, "expired")
        for seq in seqs:
            del self.in_flight[seq]
            self.remember(seq, story)
            due = 0
            if backoff is not None:
                due = lease.deadline + delay_ms(backoff, deliveries=self.deliveries[seq], seq=seq)
            self.wait(seq, due, now=now)
        lease.left = 0
        self.end(lease)
        self.expired += len(seqs)
        if ended is not None:
            ended.append(Ended(lease.number, lease.node, lease.deadline, to_runs(seqs)))
        return min(seqs)


IDLE: Final = Queue()
"""What every queue that never held a job has in common.

Nothing changes it: the first append gives its topic one of its own.
"""


def _chain(lease: Lease | None) -> Iterator[Lease]:
    while lease is not None:
        follower = lease.sibling
        yield lease
        lease = follower
