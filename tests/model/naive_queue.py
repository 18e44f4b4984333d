"""A queue as one would write it in an afternoon: a dict of jobs and a loop for every question.

It knows no cursor tricks, heaps, bitmaps, leases that split, or log. It is given the time, and what a claim was
answered; it says what must be so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
    #: What may die together with its holder, where the lease isolates, and the opening of the log that gave it.
    group: str | None = None
    epoch: int = 0
    #: When it was begun and how much later it comes back, where its worker began it.
    begun: tuple[int, int] | None = None
    #: Deliveries that were no tries; losses since the last verdict; and those of them while it was begun.
    spared: int = 0
    lost: int = 0
    lost_begun: int = 0
    #: Where a dead letter came from: topic, tries, reason, losses.
    origin: tuple[str, int, str, int] | None = None
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

    @property
    def tries(self) -> int:
        return self.deliveries - self.spared

    @property
    def is_suspect(self) -> bool:
        return self.lost > 0


class Refused(Exception):
    """The queue answers with an error; its code is the argument."""


class Asked(NamedTuple):
    """What a claim asks for. ``group`` is None where its lease does not isolate; ``borrows`` says that suspects have
    waited for so long that it may have one.
    """

    wanted: int
    losses_max: int
    group: str | None = None
    suspects: bool = False
    borrows: bool = False


class Chosen(NamedTuple):
    """Jobs to hand out, jobs to dead-letter first, and jobs to park first."""

    jobs: list[Job]
    poisoned: list[Job]
    worn: list[Job]


@dataclass
class NaiveQueue:
    """One queue. ``claimed_max`` is the highest seq that was handed out while it was fresh: what waits at or below it
    has come back. ``borrowed`` has the suspect that a group took last without asking for it. ``sure`` has each job as
    it was before a loss that no event says: a log that ends before it knows nothing of it.
    """

    config: dict[str, Any] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    head: int = 0
    visible: int = 0
    claimed_max: int = 0
    acked_max: int = 0
    expired: int = 0
    lost: int = 0
    dead_lettered: int = 0
    claims: dict[str, int] = field(default_factory=dict)
    borrowed: dict[str, int] = field(default_factory=dict)
    sure: dict[int, Job] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """A setting of the queue; None where it was not given."""
        return self.config.get(name)

    # Time

    def tick(self, now: int, wall: int, epoch: int) -> None:
        """Let time come to ``now``, in this opening of the log."""
        for job in self.held():
            if job.deadline < now:
                self.expired += 1
                self._expire(job, epoch)
        for job in self.jobs.values():
            if job.due <= now:
                job.due = 0
            if job.wall_due <= wall:
                job.wall_due = 0

    def _expire(self, job: Job, epoch: int) -> None:
        """A lease that isolates and ran out is lost; but if the log was opened since, it only was no try."""
        if job.group is None:
            job.due = job.deadline + self._backoff(job)
            self._end(job, job.deadline, "expired")
        elif job.epoch == epoch:
            self.sure[job.seq] = replace(job)
            self.lose(job, job.deadline, None)
        else:
            job.spared += 1
            self._end(job, job.deadline, "expired")

    def lose(self, job: Job, at: int, reason: str | None) -> None:
        """The worker of a job is gone: a try only if it began the job, which comes back after a while then."""
        self.lost += 1
        job.lost += 1
        if job.begun is None:
            job.spared += 1
        else:
            job.lost_begun += 1
            job.due = at + job.begun[1]
        self._end(job, at, "lost", reason)

    def unsay(self, log_end: int) -> None:
        """The log ends here: what was lost after it is as it was."""
        for seq, job in self.sure.items():
            if job.deadline >= log_end and seq in self.jobs:
                self.jobs[seq] = job
                self.expired -= 1
                self.lost -= 1
        self.sure = {}

    def _backoff(self, job: Job) -> int:
        backoff = self.setting("retry_backoff")
        return delay_ms(Backoff(**backoff), deliveries=job.tries, seq=job.seq) if backoff else 0

    def _end(self, job: Job, at: int, how: str, reason: str | None = None) -> None:
        job.story = [*job.story, (job.lease, job.node, job.since, at, how, reason)][-32:]
        job.lease, job.group, job.begun = 0, None, None
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
        """What can be claimed."""
        return [self.jobs[seq] for seq in self.in_state("ready") if seq <= self.visible]

    def in_line(self) -> list[Job]:
        """What any claim may hand out: what has come back first, then what is fresh, each by seq."""
        waiting = [job for job in self.ready() if not job.is_suspect]
        return sorted(waiting, key=lambda job: (job.seq > self.claimed_max, job.seq))

    def suspects(self) -> list[int]:
        """The suspects that wait, whether or not they can be seen yet."""
        return [seq for seq in self.in_state("ready") if self.jobs[seq].is_suspect]

    def holes(self) -> int:
        """Maximal runs of unacked seqs below the highest acked one; parked and delayed jobs and waiting suspects do not
        count.
        """
        holes, inside = 0, False
        for seq in range(1, self.acked_max + 1):
            unacked = seq in self.jobs and self.jobs[seq].state in ("in_flight", "ready")
            unacked = unacked and not (self.jobs[seq].is_suspect and self.jobs[seq].state == "ready")
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

    def room_for(self, count: int) -> int:
        """How many of so many jobs fit."""
        cap = self.setting("cap_records")
        return min(count, max(cap - len(self.jobs), 0)) if cap and self.setting("discard") == "reject" else count

    def is_full_for(self, count: int) -> bool:
        return self.room_for(count) < count

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

    def choose(self, asked: Asked) -> Chosen:
        """What a claim of this kind is given. Raises Refused at a cap."""
        wanted = self._within_cap(asked.wanted)
        if asked.suspects:
            return self._choose_suspects(wanted, asked.losses_max)
        if not self.suspects() or (asked.group is not None and not self._may_borrow(asked)):
            return Chosen(*self._choose(wanted), [])
        if asked.group is None:
            first = Chosen([], [], [])
            with suppress(Refused):
                first = Chosen(*self._choose(wanted), [])
            left = wanted - len(first.jobs)
            rest = self._choose_suspects(left, asked.losses_max) if left else Chosen([], [], [])
        else:
            first, rest = self._choose_suspects(1, asked.losses_max), Chosen([], [], [])
            left = wanted - len(first.jobs)
            with suppress(Refused):
                rest = Chosen(*self._choose(left), []) if left else rest
        jobs = sorted(first.jobs + rest.jobs, key=lambda job: job.seq)
        return Chosen(jobs, first.poisoned + rest.poisoned, first.worn + rest.worn)

    def _may_borrow(self, asked: Asked) -> bool:
        """Whether this claim may have a suspect that it did not ask for: its group has none."""
        job = self.jobs.get(self.borrowed.get(asked.group or "", 0))
        return asked.borrows and not (job is not None and job.group == asked.group and job.is_suspect)

    def _choose_suspects(self, wanted: int, losses_max: int) -> Chosen:
        jobs: list[Job] = []
        poisoned: list[Job] = []
        worn: list[Job] = []
        for job in self.ready():
            if job.is_suspect and len(jobs) < wanted:
                is_worn = job.lost >= losses_max and not job.lost_begun
                (poisoned if self._is_poisoned(job) else worn if is_worn else jobs).append(job)
        return Chosen(jobs, poisoned, worn)

    def _within_cap(self, wanted: int) -> int:
        if self.setting("max_in_flight"):
            wanted = min(wanted, self.setting("max_in_flight") - len(self.held()))
            if wanted <= 0:
                raise Refused("in_flight_cap_exceeded")
        return wanted

    def _choose(self, wanted: int) -> tuple[list[Job], list[Job]]:
        """Jobs in line to hand out, and jobs to dead-letter first. Raises Refused at a cap."""
        taken: list[Job] = []
        poisoned: list[Job] = []
        for job in self.in_line():
            if job.seq <= self.claimed_max and len(taken) < wanted:
                (poisoned if self._is_poisoned(job) else taken).append(job)
        fresh = [job for job in self.in_line() if job.seq > self.claimed_max]
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
        return bool(deliveries_max and not forever and job.tries >= deliveries_max)

    def hand_out(
        self,
        jobs: list[Job],
        *,
        lease: int,
        node: str,
        now: int,
        deadline: int,
        claim_id: str | None,
        group: str | None = None,
        epoch: int = 0,
    ) -> None:
        for job in jobs:
            if not job.is_suspect:
                self.claimed_max = max(self.claimed_max, job.seq)
            job.deliveries += 1
            job.lease, job.node, job.since, job.deadline = lease, node, now, deadline
            job.group, job.epoch = group, epoch
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
            job.lost = job.lost_begun = 0
            wait = self._backoff(job) if delay is None else delay
            job.due = now + wait if wait else 0

    def release(self, job: Job, now: int) -> None:
        """The connection on which a job was delivered is gone: no try where its lease isolates."""
        job.spared += job.group is not None
        self._end(job, now, "disconnect")

    def give_back(self, job: Job, *, now: int, delay: int, reason: str | None) -> None:
        """The holder says that this delivery was no try."""
        job.spared += 1
        self._end(job, now, "returned", reason)
        job.due = now + delay if delay else 0

    def park(self, reasons: dict[int, str], *, now: int) -> None:
        for seq, reason in reasons.items():
            job = self.jobs[seq]
            if job.lease:
                self._end(job, now, "dead", reason)
                job.lost = job.lost_begun = 0
            job.parked = reason
