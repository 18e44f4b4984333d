"""Items of a watch and of an event stream: batches of records, and the lifecycle of jobs."""

from __future__ import annotations

import msgspec

from tenure.contract.replies.records import ReadRecord

__all__ = ["CaughtUp", "Gap", "Lifecycle", "Records", "TopicDeleted"]


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


class Lifecycle(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change in the life of jobs of a queue (or of records of a log: produced only). Times are wall ms.

    ``runs`` are first seq, count, first seq, count and so on. ``deliveries`` is given where all jobs of the row share
    it, ``lease_id`` where they share one lease. ``deliver_at`` is when the first of them can be claimed, where that is
    not at once. ``origin`` is the topic that records were moved from, as dead letters or by a redrive: they were
    produced there and not here.
    """

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
    deliver_at: int | None = None
    origin: str | None = None


class Gap(msgspec.Struct, frozen=True):
    """Events that this reader missed: the server was restarted, or the reader was away for too long."""

    topic: str
    reason: str
