"""The figures of a report as plain values: a bounded number of rows of each table, for a page or a terminal."""

from __future__ import annotations

import msgspec

__all__ = [
    "DeadLetters",
    "Deliveries",
    "Durations",
    "Figures",
    "Gap",
    "Latency",
    "Point",
    "Poison",
    "QueueRow",
    "Returns",
    "Worker",
]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, or all of them where ``queue`` is None."""

    queue: str | None
    produced: int
    moved_in: int
    claimed: int
    extended: int
    released: int
    returned: int
    expired: int
    lost: int
    acked: int
    dead_lettered: int
    redriven: int
    rows: int
    first_ms: int
    last_ms: int
    lives: int
    done: int
    dead: int
    moved: int
    held: int
    waiting: int
    begun_before: int
    delivered_again: int
    workers: int
    jain_acked: float | None
    jain_held: float | None

    @property
    def arrived(self) -> int:
        """Return the jobs that came into the queue, from any producer."""
        return self.produced + self.moved_in

    @property
    def given_back(self) -> int:
        """Return the deliveries that ended without a verdict on the job's life: another one follows."""
        return self.released + self.returned + self.expired + self.lost


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in one step of time."""

    queue: str | None
    start_ms: int
    step_ms: int
    produced: int
    moved_in: int
    claimed: int
    extended: int
    released: int
    returned: int
    expired: int
    lost: int
    acked: int
    dead_lettered: int
    redriven: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """A measure of a queue in percentiles."""

    queue: str | None
    measure: str
    jobs: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int
    sum_ms: int


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs whose measure fell into the class that begins at ``low_ms``."""

    queue: str | None
    measure: str
    low_ms: int
    jobs: int


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were delivered that often, from ``low`` on."""

    queue: str | None
    low: int
    jobs: int
    deliveries: int
    done: int
    dead: int


class Returns(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries that ended without an ack."""

    queue: str | None
    how: str
    reason: str
    returned: int
    redelivered: int
    lost_ms: int


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was delivered again and again."""

    queue: str
    seq: int
    life: int
    deliveries: int
    outcome: str
    reason: str
    last_ms: int
    log: int


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one worker."""

    queue: str | None
    node: str
    claimed: int
    acked: int
    released: int
    returned: int
    expired: int
    lost: int
    held_ms: int


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs taken out of circulation for one reason."""

    queue: str | None
    reason: str
    dest: str | None
    jobs: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were never exported."""

    queue: str | None
    reason: str | None
    at_ms: int
    first_batch: int | None
    last_batch: int | None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of the page.

    Lists are the beginnings of their tables, in the order of importance; ``…_count`` is the number of rows in the
    table.
    """

    source: str
    only: tuple[str, ...] = ()
    """The queues that were asked for; empty for all."""
    made_ms: int
    step_ms: int
    malformed: int
    all: QueueRow
    open_jobs: int
    queues: list[QueueRow]
    queues_count: int
    idle: list[QueueRow]
    idle_count: int
    points: list[Point]
    latency: list[Latency]
    classes: list[Durations]
    deliveries: list[Deliveries]
    returns: list[Returns]
    returns_count: int
    poison: list[Poison]
    workers: list[Worker]
    workers_count: int
    dead_letters: list[DeadLetters]
    dead_letters_count: int
    gaps: list[Gap]
    gaps_count: int

    def latency_of(self, queue: str | None, measure: str) -> Latency | None:
        """Return the percentiles of a measure, where there are any."""
        return next((each for each in self.latency if (each.queue, each.measure) == (queue, measure)), None)
