"""Jobs and leases: what a claim gives, and where each job stands."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from tenure.client.replies.raw import SERVER, MaybeRaw
from tenure.contract.replies import LeaseRow

__all__ = [
    "Claimed",
    "Delivery",
    "Job",
    "JobInfo",
    "JobPage",
    "JobRow",
    "LeasePage",
]


class Job(msgspec.Struct, frozen=True, gc=False, rename=SERVER):
    """One job as it is handed out. ``lease_id`` and ``deadline`` (wall ms) are None where the claim acked by itself."""

    seq: int
    data: Raw
    ts: int = 0
    deliveries: int = 1
    lease_id: str | None = None
    deadline: int | None = None
    tag: str | None = None
    meta: MaybeRaw = None


class Claimed(msgspec.Struct, frozen=True, rename={"jobs": "claimed"}):
    """The jobs of one claim, under one lease; ``lease_id`` is None where nothing is held."""

    topic: str
    jobs: list[Job]
    ready: int = 0
    lease_id: str | None = None


class JobRow(msgspec.Struct, frozen=True, rename={"seq": "$seq"}):
    """Where one job stands; times are wall ms."""

    seq: int
    state: str
    deliveries: int = 0
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    deliver_at: int | None = None
    reason: str | None = None


class JobPage(msgspec.Struct, frozen=True):
    """Jobs in one state, ascending by seq."""

    topic: str
    state: str
    jobs: list[JobRow]
    next_cursor: str | None = None


class Delivery(msgspec.Struct, frozen=True, rename={"since": "from", "until": "to"}):
    """One delivery that has ended: under which lease, to whom, from when to when, how and why."""

    lease_id: str
    node: str
    since: int
    until: int
    end: str
    reason: str | None = None


class JobInfo(msgspec.Struct, frozen=True, rename={"seq": "$seq", "ts": "$ts", "tag": "$tag", "producer": "$node"}):
    """One job: its record, where it stands, and its last deliveries. ``node`` holds it, ``producer`` wrote it."""

    topic: str
    seq: int
    ts: int
    data: Raw
    state: str
    deliveries: int = 0
    history: list[Delivery] = []
    producer: str | None = None
    tag: str | None = None
    meta: MaybeRaw = None
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    deliver_at: int | None = None
    reason: str | None = None


class LeasePage(msgspec.Struct, frozen=True):
    """Live leases, oldest first."""

    topic: str
    leases: list[LeaseRow]
    next_cursor: str | None = None
