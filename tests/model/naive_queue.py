"""A queue as one would write it in an afternoon: a dict of jobs and a loop for every question.

It knows no cursor tricks, heaps, bitmaps, leases that split, or log. It is given the time, and what a claim was
answered; it says what must be so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenure.contract.config import Backoff
from tenure.core.backoff import delay_ms


@dataclass
class Job:
    """Everything that is known of one job, in plain fields."""

    seq: int
    data: bytes
    tag: str | None = None
    key: str | None = None
    deliveries: int = 0
    lease: int = 0
    node: str = ""
    since: int = 0
    deadline: int = 0
    due: int = 0
    wall_due: int = 0
    parked: str | None = None
    #: Where a dead letter came from: topic, deliveries, reason.
    origin: tuple[str, int, str] | None = None
    #: The dead letter that a parked job was copied to.
    copy: Job | None = None
    story: list[tuple[int, str, int, int, str, str | None]] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.lease:
            return "in_flight"
        if self.parked is not None:
            return "parked"
        return "delayed" if self.due or self.wall_due else "ready"


class Refused(Exception):
    """The queue answers with an error; its code is the argument."""


@dataclass
class NaiveQueue:
    """One queue. ``claimed_max`` is the highest seq ever handed out: what waits at or below it has come back."""

    config: dict[str, Any] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    head: int = 0
    visible: int = 0
    claimed_max: int = 0
    acked_max: int = 0
    expired: int = 0
    dead_lettered: int = 0
    claims: dict[str, int] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """A setting of the queue; None where it was not given."""
        return self.config.get(name)

    # Time

    def tick(self, now: int, wall: int) -> None:
        """Let time come to ``now``."""
        for job in self.held():
            if job.deadline < now:
                self.expired += 1
                self._end(job, job.deadline, "expired")
                job.due = job.deadline + self._backoff(job)
        for job in self.jobs.values():
            if job.due <= now:
                job.due = 0
            if job.wall_due <= wall:
                job.wall_due = 0

    def _backoff(self, job: Job) -> int:
        backoff = self.setting("retry_backoff")
        return delay_ms(Backoff(**backoff), deliveries=job.deliveries, seq=job.seq) if backoff else 0

    def _end(self, job: Job, at: int, how: str, reason: str | None = None) -> None:
        job.story = [*job.story, (job.lease, job.node, job.since, at, how, reason)][-32:]
        job.lease = 0
        self._forget_claims()

    def _forget_claims(self) -> None:
        held = {job.lease for job in self.held()}
        self.claims = {claim_id: lease for claim_id, lease in self.claims.items() if lease in held}

    # Looking

    def held(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.lease]

    def in_state(self, state: str) -> list[int]:
        return sorted(job.seq for job in self.jobs.values() if job.state == state)

    def ready(self) -> list[Job]:
        """What a claim may hand out: what has come back first, then what is fresh, each by seq."""
        waiting = [self.jobs[seq] for seq in self.in_state("ready") if seq <= self.visible]
        return sorted(waiting, key=lambda job: (job.seq > self.claimed_max, job.seq))

    def holes(self) -> int:
        """Maximal runs of unacked seqs below the highest acked one; parked and delayed jobs do not count."""
        holes, inside = 0, False
        for seq in range(1, self.acked_max + 1):
            unacked = seq in self.jobs and self.jobs[seq].state in ("in_flight", "ready")
            holes += unacked and not inside
            inside = unacked
        return holes

    # Appending and removing

    def append(self, job: Job) -> None:
        self.head += 1
        assert job.seq == self.head
        self.jobs[job.seq] = job

    def unique(self, key: str) -> int | None:
        return next((job.seq for job in self.jobs.values() if job.key == key), None)

    def is_full_for(self, count: int) -> bool:
        cap = self.setting("cap_records")
        return bool(cap and self.setting("discard") == "reject" and len(self.jobs) + count > cap)

    def evict(self) -> None:
        """Over the cap the oldest free jobs go, but never the newest."""
        cap = self.setting("cap_records")
        if not cap or self.setting("discard") == "reject":
            return
        free = [job.seq for job in self.jobs.values() if job.state not in ("in_flight", "parked")]
        self.remove([seq for seq in sorted(free) if seq < self.head][: max(len(self.jobs) - cap, 0)])

    def remove(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.jobs[seq]
        self._forget_claims()

    # Leases

    def choose(self, wanted: int) -> tuple[list[Job], list[Job]]:
        """Jobs to hand out, and jobs to dead-letter first. Raises Refused at a cap."""
        if self.setting("max_in_flight"):
            wanted = min(wanted, self.setting("max_in_flight") - len(self.held()))
            if wanted <= 0:
                raise Refused("in_flight_cap_exceeded")
        taken: list[Job] = []
        poisoned: list[Job] = []
        for job in self.ready():
            if job.seq <= self.claimed_max and len(taken) < wanted:
                (poisoned if self._is_poisoned(job) else taken).append(job)
        fresh = [job for job in self.ready() if job.seq > self.claimed_max]
        holes_max = self.setting("max_ack_holes")
        if len(taken) < wanted and holes_max and self.holes() > holes_max:
            if not taken and not poisoned and self.visible > self.claimed_max:
                raise Refused("ack_hole_cap_exceeded")
            return taken, poisoned
        fresh = fresh[: wanted - len(taken)]
        spent = [job for job in fresh if self._is_poisoned(job)]  # delivered often enough in an earlier life
        if spent:
            fresh = [job for job in fresh if job.seq < spent[0].seq]
        return taken + fresh, poisoned + spent

    def _is_poisoned(self, job: Job) -> bool:
        deliveries_max = self.setting("max_deliveries")
        forever = self.setting("dlq_strategy") == "skip" and not self.setting("dead_letter")
        return bool(deliveries_max and not forever and job.deliveries >= deliveries_max)

    def hand_out(
        self, jobs: list[Job], *, lease: int, node: str, now: int, deadline: int, claim_id: str | None
    ) -> None:
        for job in jobs:
            job.deliveries += 1
            job.lease, job.node, job.since, job.deadline = lease, node, now, deadline
            self.claimed_max = max(self.claimed_max, job.seq)
        if claim_id is not None and jobs:
            self.claims[claim_id] = lease

    def holds(self, node: str, seq: int, lease: int | None) -> bool:
        """Whether ``node`` holds the job, and under this lease if one is named."""
        job = self.jobs.get(seq)
        return job is not None and job.lease != 0 and job.node == node and lease in (None, job.lease)

    def ack(self, seqs: set[int]) -> None:
        for seq in seqs:
            self.acked_max = max(self.acked_max, seq)
        self.remove(list(seqs))

    def nack(self, seqs: set[int], *, now: int, delay: int | None, reason: str | None) -> None:
        for seq in seqs:
            job = self.jobs[seq]
            self._end(job, now, "nack", reason)
            wait = self._backoff(job) if delay is None else delay
            job.due = now + wait if wait else 0

    def release(self, job: Job, now: int) -> None:
        """The connection on which a job was delivered is gone."""
        self._end(job, now, "disconnect")

    def park(self, reasons: dict[int, str], *, now: int) -> None:
        for seq, reason in reasons.items():
            job = self.jobs[seq]
            if job.lease:
                self._end(job, now, "dead", reason)
            job.parked = reason
