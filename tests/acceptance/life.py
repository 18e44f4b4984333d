"""A process that produces, claims, acks and nacks at full speed until it is killed, and notes what it was told.

    python -m tests.acceptance.life HOME NOTES NAME

Everything slow is loaded before it waits for a line on stdin; then it opens the broker, says ``open`` and goes on for
ever; one whose name is ``idle`` only opens. Notes are rows of a ``History``, written to the file one by one, so that a
kill loses none that were made.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

from tenure import Broker, Settings
from tenure.contract.replies import Grant
from tenure.testing.history import History, Outcome

LEASE_MS = 400
SETTINGS = Settings(segment_bytes=1 << 16, spare_segments=1, trim_step_bytes=1 << 14, checkpoint_bytes=1 << 17)
QUEUES: dict[str, dict[str, Any]] = {
    "synced": {"type": "queue", "durability": "fsync", "max_deliveries": 4, "dead_letter": "dead"},
    "written": {"type": "queue", "durability": "disk"},
}


class Notes:
    """A history that is in the file as soon as it is noted."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.rows = History()

    def keep(self) -> None:
        """Write what was noted since the last time, in one go."""
        os.write(self._file, self.rows.to_lines())
        self.rows = History()


def now_ms(broker: Broker) -> int:
    """Log time: the one clock that orders what a broker does, through all its lives."""
    return broker._engine.now()


def note_claim(broker: Broker, notes: Notes, claim: Grant, lease_ms: int) -> None:
    deadline = claim.deadline - broker._engine.state.wall_offset_ms
    for job in claim.jobs:
        notes.rows.delivery(
            claim.topic,
            job.seq,
            job.data.decode().strip('".'),
            lease=claim.lease_id or "",
            node=claim.node,
            deliveries=claim.deliveries(job.seq),
            at=deadline - lease_ms,
            deadline=deadline,
        )
    notes.keep()


async def settle(broker: Broker, notes: Notes, claim: Grant, *, ack: bool) -> None:
    """Ack or nack a claim: unknown until the answer is there."""
    at, note = now_ms(broker), notes.rows.ack if ack else notes.rows.nack
    for seq in claim.seqs:
        note(claim.topic, seq, lease=claim.lease_id or "", outcome="unknown", at=at)
    notes.keep()
    command = broker.ack if ack else broker.nack
    skipped = (await command(claim.topic, node=claim.node, seqs=claim.seqs, lease_id=claim.lease_id)).skipped
    note = notes.rows.ack if ack else notes.rows.nack
    for seq in claim.seqs:
        outcome: Outcome = "fail" if seq in skipped else "ok"
        note(claim.topic, seq, lease=claim.lease_id or "", outcome=outcome, at=at)
    notes.keep()


async def produce(broker: Broker, notes: Notes, topic: str, name: str, random: Random) -> None:
    number = 0
    while True:
        ids = [f"{name}-{topic}-{number + i}" for i in range(random.choice((1, 1, 5, 20)))]
        number += len(ids)
        notes.rows.produce(ids, "invoke", at=now_ms(broker))
        notes.keep()
        await broker.produce(topic, [b'"%s%s"' % (id.encode(), b"." * random.randrange(200)) for id in ids])
        notes.rows.produce(ids, "ok", at=now_ms(broker))
        notes.keep()
        while broker.topic(topic).count > 500:
            await asyncio.sleep(0.001)


async def work(broker: Broker, notes: Notes, topic: str, node: str, random: Random) -> None:
    while True:
        claim = await broker.claim(
            topic, node=node, max_count=random.choice((1, 10, 50)), lease_ms=LEASE_MS, wait_ms=100
        )
        note_claim(broker, notes, claim, LEASE_MS)
        choice = random.random()
        if not claim.jobs or choice < 0.02:  # now and then a worker forgets its jobs
            continue
        await settle(broker, notes, claim, ack=choice < 0.95)


async def main(home: str, notes_path: str, name: str) -> None:
    random, notes = Random(name), Notes(notes_path)
    sys.stdin.readline()
    broker = await Broker.open(home, settings=SETTINGS)
    if name == "idle":
        print("open", flush=True)
        await asyncio.Event().wait()
    for topic, config in QUEUES.items():
        await broker.put_topic(topic, config)
    print("open", flush=True)
    async with asyncio.TaskGroup() as tasks:
        for topic in QUEUES:
            tasks.create_task(produce(broker, notes, topic, name, random))
            for worker in "ab":
                tasks.create_task(work(broker, notes, topic, f"{name}-{worker}", random))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
