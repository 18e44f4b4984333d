"""Replies that show a whole queue: both ends of it, and histograms of waiting and working times."""

from __future__ import annotations

import msgspec

from tenure.contract.replies.jobs import JobRow
from tenure.contract.replies.topics import ConfigInfo, QueueCounts

__all__ = ["Distribution", "QueueMeters", "QueueStrip", "StripLease", "WorstJob"]


class StripLease(msgspec.Struct, frozen=True):
    """A live lease as a strip shows it: how many jobs it holds, and the first of them."""

    lease_id: str
    node: str
    since: int
    deadline: int
    held: int
    seqs: list[int]


class QueueStrip(msgspec.Struct, frozen=True):
    """Both ends of a queue, ascending by seq, with its counts, its parked jobs and its oldest leases.

    ``next`` is the job that is next in line, at either end or between. ``next_at`` is when time alone changes something
    next. Both are None where there is none.
    """

    topic: str
    now: int
    next_at: int | None
    head_seq: int
    count: int
    config: ConfigInfo
    queue: QueueCounts
    head: list[JobRow]
    tail: list[JobRow]
    next: JobRow | None
    parked: list[JobRow]
    leases: list[StripLease]
    leases_count: int


class WorstJob(msgspec.Struct, frozen=True, gc=False):
    """The live job that was tried most often, and how often it was handed out."""

    seq: int
    deliveries: int
    tries: int


class Distribution(msgspec.Struct, frozen=True):
    """A histogram with its quantiles; ``counts`` has one more than ``bounds``, for values above them."""

    bounds: list[float]
    counts: list[int]
    count: int
    sum: float
    p50: float | None
    p90: float | None
    p99: float | None


class QueueMeters(msgspec.Struct, frozen=True):
    """How long a queue's jobs wait and take, and how often they are handed out, since ``since`` (wall ms).

    ``since`` is None where nothing happened since the broker was opened. Totals count jobs.
    """

    topic: str
    since: int | None
    claimed: int
    acked: int
    released: int
    expired: int
    failed_before: int
    worst: WorstJob | None
    in_queue_ms: Distribution
    processing_ms: Distribution
    deliveries: Distribution
