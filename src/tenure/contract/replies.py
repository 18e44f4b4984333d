"""Replies: each answer of the broker once. The broker returns these, and clients decode most of them from the wire.

Times are wall clock in milliseconds. Unknown fields are ignored by a decoder, so a newer server can say more. What the
wire writes in another form than the broker holds it (records, jobs, listings) has its decoded form in the client.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.contract.records import Stored, lease_id

__all__ = [
    "DeletedRecords",
    "Difference",
    "Extended",
    "Grant",
    "LeaseRow",
    "Page",
    "Produced",
    "QueueCounts",
    "Redriven",
    "Settled",
    "Tombstone",
    "TopicInfo",
]


class Produced(msgspec.Struct, frozen=True, gc=False):
    """Where records went. ``deduped`` means that they were there already and nothing was appended."""

    topic: str
    first_seq: int
    last_seq: int
    count: int
    created: bool = False
    deduped: bool = False
    head_seq: int = 0

    @property
    def seqs(self) -> range:
        """Return the seqs, in the order of the records."""
        return range(self.first_seq, self.last_seq + 1)


class Grant(msgspec.Struct, frozen=True):
    """Jobs held by ``node`` until ``deadline`` under one lease; ``ready`` is what still waits.

    ``lease`` is 0 where nothing is held: nothing was there, or the claim acked by itself. ``redelivered`` has the
    count of those jobs that were delivered before. ``lease_ms`` is the duration that this claim was given; 0 where it
    repeats an earlier one or holds nothing.
    """

    topic: str
    node: str
    lease: int
    deadline: int
    jobs: list[Stored]
    redelivered: dict[int, int]
    ready: int
    lease_ms: int = 0

    @property
    def lease_id(self) -> str | None:
        """Return the id to ack, nack or extend by; None where nothing is held."""
        return lease_id(self.lease) if self.lease else None

    @property
    def seqs(self) -> list[int]:
        return [job.seq for job in self.jobs]

    def deliveries(self, seq: int) -> int:
        """Return how often a job of this claim has been delivered, this time included."""
        return self.redelivered.get(seq, 1)


class Settled(msgspec.Struct, frozen=True, gc=False):
    """How many jobs an ack or a nack settled, and which seqs were not the caller's.

    ``repeated`` says that an earlier copy of the call may have arrived: then a skipped seq may be its doing. Only a
    client sets it.
    """

    topic: str
    count: int
    skipped: list[int]
    ready: int = 0
    in_flight: int = 0
    repeated: bool = False


class Extended(msgspec.Struct, frozen=True):
    """The new deadlines by seq, and the seqs that were not the caller's; ``repeated`` as in `Settled`."""

    topic: str
    deadlines: dict[int, int]
    skipped: list[int] = []
    repeated: bool = False


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters went back to work, and where to."""

    topic: str
    redriven: int
    to: str = ""
    seqs: list[int] = []


class Tombstone(msgspec.Struct, frozen=True):
    """Records that a reader missed although no caller removed them."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class Difference(msgspec.Struct, frozen=True):
    """Records that a read found above its cursor."""

    topic: str
    records: list[Stored]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class DeletedRecords(msgspec.Struct, frozen=True):
    """How many records a delete removed, and what is left."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class QueueCounts(msgspec.Struct, frozen=True):
    """How many jobs stand where; ``dead`` lie dead now, ``dead_lettered`` were dead-lettered so far."""

    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    parked: int = 0
    dead: int = 0
    dead_lettered: int = 0
    oldest_ready_ms: int | None = None
    ack_holes: int = 0


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic's state and config; ``queue`` is None on a log."""

    topic: str
    type: str
    config: dict[str, Any]
    head_seq: int = 0
    durable_seq: int = 0
    earliest_seq: int = 1
    next_seq: int = 1
    count: int = 0
    bytes: int = 0
    effective_priority: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueCounts | None = None


class LeaseRow(msgspec.Struct, frozen=True):
    """A live lease: who holds which jobs, since when and until when (wall ms)."""

    lease_id: str
    node: str
    since: int
    deadline: int
    seqs: list[int]


class Page(msgspec.Struct, frozen=True):
    """A page of a listing; ``next_cursor`` is None on the last one."""

    items: list[Any]
    next_cursor: str | None = None
