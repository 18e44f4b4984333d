"""A broker with a random life, and the exported rows of its log."""

from __future__ import annotations

from random import Random

from tenure import Broker, Settings, TenureError
from tenure.contract.replies import Lifecycle
from tenure.export.follower import Follower
from tenure.export.rows import Exported, decode_row
from tenure.log.disk import Disk
from tenure.testing.clock import ManualClock

__all__ = ["QUEUES", "SMALL", "life", "plain", "polled", "rows_of"]

SMALL = Settings(segment_bytes=1 << 14, spare_segments=1, trim_step_bytes=1 << 12, checkpoint_bytes=1 << 14)
"""Segments so small that a short life rolls and trims."""
QUEUES = {
    "moved": {"type": "queue", "lease_ms": 1_000, "max_deliveries": 2, "dead_letter": "dead"},
    "parked": {"type": "queue", "lease_ms": 3_000, "max_deliveries": 2, "dlq_strategy": "block"},
    "slow": {"type": "queue", "lease_ms": 60_000, "retry_backoff": {"min_ms": 500}},
}


async def life(broker: Broker, clock: ManualClock, random: Random, *, steps: int) -> None:
    """Produce, claim, extend, nack, ack, let leases run out, redrive; refused commands are ignored."""
    for name, config in QUEUES.items():
        await broker.put_topic(name, config)
    for _ in range(steps):
        name, node = random.choice(list(QUEUES)), random.choice(["a", "b"])
        try:
            await _step(broker, clock, random, name=name, node=node)
        except TenureError:
            continue


async def _step(broker: Broker, clock: ManualClock, random: Random, *, name: str, node: str) -> None:
    held = [job.seq for job in broker.jobs(name, state="in_flight", limit=50).items]
    some = random.sample(held, min(len(held), random.randint(1, 4)))
    match random.randrange(8):
        case 0 | 1:
            await broker.produce(name, [b'"%d"' % number * 10 for number in range(random.randint(1, 5))])
        case 2 | 3:
            await broker.claim(name, node=node, max_count=random.randint(1, 4))
        case 4 if some:
            await broker.ack(name, node=node, seqs=some)
        case 5 if some:
            await broker.nack(name, node=node, seqs=some, reason=random.choice([None, "busy"]))
        case 6 if some:
            await broker.extend(name, node=node, seqs=some, lease_ms=5_000)
        case 7 if random.random() < 0.3:
            await broker.redrive("dead" if name == "moved" else name)
        case _:
            clock.advance(random.choice([1, 200, 2_000]))


def polled(disk: Disk | Follower) -> list[Exported]:
    """The rows of everything that is durable and new."""
    follower = disk if isinstance(disk, Follower) else Follower(disk)
    return [decode_row(entry) for step in follower.poll() for entry in step.rows]


def rows_of(rows: list[Exported]) -> list[tuple[int, int]]:
    """The names of rows."""
    return [(row.batch, row.n) for row in rows]


def plain(rows: list[Exported] | list[Lifecycle]) -> list[tuple[object, ...]]:
    """What a row says, without where it was found, in an order that does not depend on who looked when."""
    said = [
        (r.event, r.topic, r.ts, tuple(r.runs), r.node, r.lease_id, r.deliveries, r.deadline, r.reason, r.dest)
        for r in rows
    ]
    return sorted(said, key=repr)
