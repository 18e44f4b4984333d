"""Calls of a broker that are under way, and what their answers promise.

An answer promises that the events of its command survive: a kill -9 where the topic's class is ``disk``, a power loss
where it is ``fsync``. The promise is made when the answer arrives, not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tenure.broker.serving.streams import WorkStream
from tenure.contract.commands import Claim
from tenure.contract.config import TopicConfig
from tenure.contract.replies import Difference, Grant, Produced
from tenure.errors import Corrupt, Indeterminate, TenureError
from tests.lives.anomaly import Anomaly
from tests.lives.witness import Witness

__all__ = ["DISK", "FSYNC", "LEVELS", "SLACK_MS", "Call", "Promises", "lease_level"]

DISK, FSYNC = 1, 2
SLACK_MS = 5
"""How much later than its time a timer of the loop may go off."""
LEVELS = {"memory": 0, "disk": DISK, "fsync": FSYNC}

#: Commands that one damaged record must not stop.
UNSTOPPABLE = frozenset(
    {
        *("produce", "claim", "ack", "nack", "extend", "return_jobs", "begin", "end_node"),
        *("delete_records", "delete_topic", "put_topic", "patch_topic", "topic"),
    }
)


def lease_level(config: TopicConfig) -> int:
    """What an answer about a lease promises."""
    return FSYNC if config.leases_durable else min(LEVELS[config.durability], DISK)


class Promises:
    """Which events callers were told of, by what they must survive."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.kept: dict[int, int] = {}

    def make(self, index: int, level: int) -> None:
        """The event at this index must survive what ``level`` says."""
        self.kept[index] = max(level, self.kept.get(index, 0))

    def check(self, batch: int, level: int) -> None:
        """Raise Anomaly where an event beyond the last batch that is left was promised to survive."""
        for index, kept in sorted(self.kept.items()):
            noted = self.witness.noted[index]
            if kept >= level and noted.batch > batch:
                raise Anomaly("lost", f"batch {noted.batch} is gone, the log ends with {batch}: {noted.event}")

    def rewound(self, witness: Witness) -> Promises:
        """Return the promises about events that are left; they are durable now, whatever was promised."""
        other = Promises(witness)
        other.kept = dict.fromkeys(range(len(witness.noted)), FSYNC)
        return other


class Call:
    """One command that was carried out or waits, with the task that awaits its answer.

    ``wait_ms`` is how long it may wait for something to come, None for ever; ``is_alone`` says that no other call has
    its node.
    """

    def __init__(self, what: str, *, topic: str, task: asyncio.Future[Any], at_ms: int, wait_ms: int | None) -> None:
        self.what = what
        self.topic = topic
        self.task = task
        self.at_ms = at_ms
        self.wait_ms = wait_ms
        self.events: list[int] = []
        self.level = 0
        self.turn = 0
        self.node = ""
        self.was_empty = False
        self.is_cancelled = False
        self.is_alone = False
        self.on_read_only = False
        self.from_seq = 0
        self.claim: Claim | None = None
        self.stream: WorkStream | None = None
        self.then: Callable[[Any], None] | None = None

    def __str__(self) -> str:
        return f"{self.what}({self.topic})"

    def is_late(self, now_ms: int) -> bool:
        """Whether it should have been answered by now, the disk taking no time."""
        if self.task.done() or self.wait_ms is None:
            return False
        return not self.wait_ms or now_ms > self.at_ms + self.wait_ms + SLACK_MS


def check_error(call: str, error: BaseException, *, disk_failed: bool) -> None:
    """Raise Anomaly for an error that this command may not end with."""
    if not isinstance(error, TenureError):
        raise Anomaly("escape", f"{call} raises {error!r}") from error
    if isinstance(error, Corrupt) and call.partition("(")[0] in UNSTOPPABLE:
        raise Anomaly("damage", f"{call} raises {error!r}")
    if call.startswith(("close", "detach")):
        raise Anomaly("release", f"{call} raises {error!r}")
    if isinstance(error, Indeterminate) and not disk_failed:
        raise Anomaly("indeterminate", f"{call} raises {error!r}, though the disk did not fail")


def check_claim(claim: Grant, witness: Witness, promises: Promises, *, topic_id: int, now: int) -> None:
    """What a claim answers with is held, unless its owner was quick, and was sent by somebody."""
    known = witness.topics.get(topic_id)
    if known is None:
        return
    level = lease_level(known.config)
    for stored in claim.jobs:
        job = known.jobs.get(stored.seq)
        if job is None or (claim.lease and job.lease != claim.lease):
            continue
        if job.data not in (None, stored.data):
            raise Anomaly("payload", f"seq {stored.seq} of {claim.topic} is delivered as {stored.data!r}")
        if claim.lease and job.deliveries != claim.deliveries(stored.seq):
            said = claim.deliveries(stored.seq)
            raise Anomaly(
                "deliveries", f"seq {stored.seq} of {claim.topic}: {said} are told, {job.deliveries} happened"
            )
        if known.configured_by < job.set_by:  # else it was answered as another config asked for
            promises.make(job.set_by, level)
        if known.config.durability == "fsync":
            promises.make(job.born, FSYNC)


def check_dead_lease(claim: Grant, witness: Witness, *, topic_id: int, now: int) -> None:
    """A claim is answered while its lease lives: nobody can work on one that is over."""
    known = witness.topics.get(topic_id)
    for stored in claim.jobs if known is not None and claim.lease else ():
        job = known.jobs.get(stored.seq) if known is not None else None
        noted = witness.noted[job.set_by].event if job is not None else None
        if job is not None and job.lease != claim.lease and getattr(noted, "lease", 0) != claim.lease:
            raise Anomaly(
                "dead lease", f"{claim.topic} answers with seq {stored.seq}, which somebody else holds by now"
            )
        if job is not None and job.lease == claim.lease and job.deadline < now:
            raise Anomaly("dead lease", f"{claim.topic} answers at {now} with a lease until {job.deadline}")


def check_diff(found: Difference, from_seq: int, witness: Witness, promises: Promises, *, topic_id: int) -> None:
    """A read shows what was sent, and goes on."""
    if found.tombstone is not None and not found.records and found.next_from_seq == from_seq:
        raise Anomaly("reader", f"a reader of {found.topic} at {from_seq} is told {found.tombstone} and does not move")
    known = witness.topics.get(topic_id)
    for record in found.records if known is not None else ():
        assert known is not None
        job = known.jobs.get(record.seq)
        if job is not None and job.data not in (None, record.data):
            raise Anomaly("payload", f"seq {record.seq} of {found.topic} reads as {record.data!r}")
        if job is not None and known.config.durability == "fsync":
            promises.make(job.born, FSYNC)


def check_produced(produced: Produced, durable_seq: int) -> None:
    """What an fsync topic acknowledged can be seen."""
    if produced.last_seq > durable_seq:
        raise Anomaly("invisible", f"seq {produced.last_seq} of {produced.topic} is acknowledged, seen: {durable_seq}")
