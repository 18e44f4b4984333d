"""Replies about jobs: the jobs of a claim, the state of one job, and the jobs of a queue by state."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from tenure.contract.records import Stored, lease_id
from tenure.contract.replies.raw import SERVER, MaybeRaw

__all__ = ["Claimed", "Delivery", "Grant", "Job", "JobInfo", "JobPage", "JobRow"]


class Grant(msgspec.Struct, frozen=True):
    """Jobs held by ``node`` until ``deadline`` under one lease; ``ready`` is what still waits.

    ``lease`` is 0 where nothing is held: nothing was there, or the claim acked by itself. ``redelivered`` has the
    count of those jobs that were delivered before. ``lease_ms`` is the duration that this claim was given; 0 where it
    repeats an earlier one or holds nothing. ``tries`` has how many deliveries count of a job, where that is not all of
    them, and ``lost`` how often its worker was lost. ``suspects`` is how many suspects wait, for a claim that isolates.

    `Claimed` is the same reply as a client decodes it. Here a job is the stored record and the lease a number, because
    a claim of a thousand jobs must not make a second object for each.
    """

    topic: str
    node: str
    lease: int
    deadline: int
    jobs: list[Stored]
    redelivered: dict[int, int]
    ready: int
    lease_ms: int = 0
    tries: dict[int, int] = {}
    lost: dict[int, int] = {}
    suspects: int = 0

    @property
    def lease_id(self) -> str | None:
        """The id to ack, nack or extend by; None where nothing is held."""
        return lease_id(self.lease) if self.lease else None

    @property
    def seqs(self) -> list[int]:
        return [job.seq for job in self.jobs]

    def deliveries(self, seq: int) -> int:
        """Return how often a job of this claim has now been delivered."""
        return self.redelivered.get(seq, 1)


class Job(msgspec.Struct, frozen=True, gc=False, rename=SERVER):
    """One job as it is handed out. ``lease_id`` and ``deadline`` (wall ms) are None where the claim acked by itself.

    ``tries`` is how many of the ``deliveries`` count against ``max_deliveries``; 0 where all of them do. ``lost`` is
    how often its worker was lost since the last verdict: with more than 0 it is a suspect.
    """

    seq: int
    data: Raw
    ts: int = 0
    deliveries: int = 1
    lease_id: str | None = None
    deadline: int | None = None
    tag: str | None = None
    meta: MaybeRaw = None
    tries: int = 0
    lost: int = 0


class Claimed(msgspec.Struct, frozen=True, rename={"jobs": "claimed"}):
    """The jobs of one claim, under one lease; ``lease_id`` is None where nothing is held. ``suspects`` is how many
    suspects wait, for a claim that isolates.
    """

    topic: str
    jobs: list[Job]
    ready: int = 0
    lease_id: str | None = None
    suspects: int = 0


class JobRow(msgspec.Struct, frozen=True, rename={"seq": "$seq"}, omit_defaults=True):
    """The state of one job: its holder, since when and until when, and why it last came back; times are wall ms.

    ``tries`` is how many of its deliveries count, where that is not all of them; ``lost`` is how often its worker was
    lost since the last verdict.
    """

    seq: int
    state: str
    deliveries: int
    node: str | None = None
    lease_id: str | None = None
    since: int | None = None
    deadline: int | None = None
    deliver_at: int | None = None
    reason: str | None = None
    tries: int | None = None
    lost: int = 0


class JobPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs in one state, ascending by seq."""

    topic: str
    state: str
    jobs: list[JobRow]
    next_cursor: str | None = None


class Delivery(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """One delivery that has ended: its lease, its holder, when it began and ended, how and why."""

    lease_id: str
    node: str
    since: int
    until: int
    end: str
    reason: str | None = None


class JobInfo(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"seq": "$seq", "ts": "$ts", "tag": "$tag", "producer": "$node"},
):
    """One job: its record, its state, and its last deliveries. ``node`` holds it, ``producer`` wrote it; ``tries`` and
    ``lost`` as in `JobRow`.
    """

    topic: str
    seq: int
    ts: int
    producer: str | None = None
    tag: str | None = None
    data: Raw
    meta: MaybeRaw = None
    state: str
    deliveries: int
    node: str | None = None
    lease_id: str | None = None
    since: int | None = None
    deadline: int | None = None
    deliver_at: int | None = None
    reason: str | None = None
    tries: int | None = None
    lost: int = 0
    history: list[Delivery]
