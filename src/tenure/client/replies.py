"""What the server answers, as Structs. Unknown fields are ignored, so a newer server can say more.

``data`` and ``meta`` are `msgspec.Raw`: JSON text as it was given, decoded by whoever wants it
(``msgspec.json.decode(job.data, type=Email)``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

__all__ = [
    "CaughtUp",
    "Claimed",
    "DeletedRecords",
    "DeletedTopic",
    "Delivery",
    "Diff",
    "Extended",
    "Gap",
    "Health",
    "Job",
    "JobInfo",
    "JobPage",
    "JobRow",
    "LeasePage",
    "LeaseRow",
    "Lifecycle",
    "Produced",
    "PutTopic",
    "QueueCounts",
    "ReadRecord",
    "Ready",
    "Records",
    "Redriven",
    "RouterInfo",
    "RouterPage",
    "Settled",
    "Tombstone",
    "TopicDeleted",
    "TopicInfo",
    "TopicPage",
]

# msgspec reads no union with Raw: where the text may be absent, the field is Raw and its default None.
if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw

_SERVER = {"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}


class Produced(msgspec.Struct, frozen=True):
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
        """The seqs, in the order of the records."""
        return range(self.first_seq, self.last_seq + 1)


class Job(msgspec.Struct, frozen=True, gc=False, rename=_SERVER):
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


class Settled(msgspec.Struct, frozen=True):
    """How many jobs an ack or a nack settled, and which seqs were not the caller's.

    ``repeated`` says that an earlier copy of the call may have arrived: then a skipped seq may be its doing.
    """

    topic: str
    count: int
    skipped: list[int]
    ready: int = 0
    in_flight: int = 0
    repeated: bool = False


class Extended(msgspec.Struct, frozen=True):
    """The new deadlines (wall ms) by seq, and the seqs that were not the caller's."""

    topic: str
    deadlines: dict[int, int]
    skipped: list[int] = []
    repeated: bool = False


class QueueCounts(msgspec.Struct, frozen=True):
    """How many jobs stand where."""

    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    parked: int = 0
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


class PutTopic(msgspec.Struct, frozen=True):
    """A topic as it stands after a put, with every field of its config."""

    topic: str
    type: str
    created: bool
    config: dict[str, Any]


class TopicPage(msgspec.Struct, frozen=True):
    """Topics by name; ``next_cursor`` is None on the last page."""

    topics: list[TopicInfo]
    next_cursor: str | None = None


class DeletedTopic(msgspec.Struct, frozen=True):
    """Whether there was such a topic, and which routers went with it."""

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class ReadRecord(msgspec.Struct, frozen=True, gc=False, rename=_SERVER):
    """A record as a reader sees it; ``data`` is None only where a watch asked for none."""

    seq: int
    ts: int
    data: MaybeRaw = None
    node: str | None = None
    tag: str | None = None
    meta: MaybeRaw = None


class Tombstone(msgspec.Struct, frozen=True):
    """Records that this reader missed and nobody asked to remove. ``topic`` is given on a watch."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0
    topic: str = ""


class Diff(msgspec.Struct, frozen=True):
    """What a read found above its cursor; go on from ``next_from_seq``."""

    topic: str
    records: list[ReadRecord]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None = None
    lag: int = 0


class DeletedRecords(msgspec.Struct, frozen=True):
    """How many records a delete removed, and what is left."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class RouterInfo(msgspec.Struct, frozen=True):
    """A router and how far it has come."""

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    forwarded_total: int = 0
    missed_total: int = 0
    created: bool = False


class RouterPage(msgspec.Struct, frozen=True):
    """Routers by name; ``next_cursor`` is None on the last page."""

    routers: list[RouterInfo]
    next_cursor: str | None = None


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters went back to work, and where to."""

    topic: str
    redriven: int
    to: str = ""
    seqs: list[int] = []


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


class LeaseRow(msgspec.Struct, frozen=True):
    """A live lease: who holds which jobs, since when and until when (wall ms)."""

    lease_id: str
    node: str
    since: int
    deadline: int
    seqs: list[int]


class LeasePage(msgspec.Struct, frozen=True):
    """Live leases, oldest first."""

    topic: str
    leases: list[LeaseRow]
    next_cursor: str | None = None


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str = ""
    uptime_ms: int = 0


class Ready(msgspec.Struct, frozen=True):
    """Requests are served."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0


class Records(msgspec.Struct, frozen=True):
    """A batch of one watched topic: everything above ``from_seq`` up to ``to_seq`` that this reader may see."""

    topic: str
    records: list[ReadRecord]
    from_seq: int
    to_seq: int
    head_seq: int


class CaughtUp(msgspec.Struct, frozen=True):
    """A watched topic has nothing more for now."""

    topic: str
    head_seq: int


class TopicDeleted(msgspec.Struct, frozen=True):
    """A watched topic is gone; the others go on."""

    topic: str
    head_seq: int = 0
    reason: str = ""


class Lifecycle(msgspec.Struct, frozen=True):
    """One thing that happened to jobs; ``runs`` are first seq, count, first seq, count and so on. Times are wall ms."""

    event: str
    topic: str
    ts: int
    runs: list[int]
    node: str | None = None
    lease_id: str | None = None
    deliveries: int | None = None
    deadline: int | None = None
    reason: str | None = None
    dest: str | None = None


class Gap(msgspec.Struct, frozen=True):
    """Events that this reader missed: the server was started again, or it was away for too long."""

    topic: str
    reason: str
