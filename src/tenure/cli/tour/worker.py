"""The process that the tour kills: it works at one queue without end and says, line by line, what it was answered.

Before an ack it says what it is about to do. So whoever reads along knows three kinds of jobs when it dies: those
whose fate was acknowledged, those that were never touched, and the few whose last command was cut off half-way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from tenure.broker.broker import Broker

__all__ = ["JOBS_PER_ROUND", "NODE", "QUEUE", "job"]

QUEUE = "orders"
NODE = "worker-1"
LEASE_MS = 1_000
JOBS_PER_ROUND = 10
_CLAIMED_PER_ROUND = 4
_ACKED_PER_ROUND = 2
_PAUSE_S = 0.002
_ROUNDS_MAX = 5_000


def job(seq: int) -> bytes:
    """The payload of a job: made from its seq, so that a reader can tell whether it is the one that was sent."""
    return b'{"order":%d,"sum":%d}' % (seq, seq * 7919 % 10_007)


async def work(directory: str) -> None:
    """Produce, claim and ack until somebody kills us (or, should nobody, for a few seconds)."""
    broker = await Broker.open(directory)
    await broker.put_topic(QUEUE, {"type": "queue", "durability": "fsync", "lease_ms": LEASE_MS})
    _say("opened", pid=os.getpid())
    seq = 0
    for _ in range(_ROUNDS_MAX):
        produced = await broker.produce(QUEUE, [job(seq + n) for n in range(1, JOBS_PER_ROUND + 1)])
        seq = produced.last_seq
        _say("produced", seqs=list(produced.seqs))
        claim = await broker.claim(QUEUE, node=NODE, max_count=_CLAIMED_PER_ROUND)
        _say("claimed", seqs=claim.seqs, deadline=claim.deadline)
        done = claim.seqs[:_ACKED_PER_ROUND]
        _say("acking", seqs=done)
        skipped = (await broker.ack(QUEUE, node=NODE, seqs=done)).skipped
        _say("acked", seqs=[each for each in done if each not in skipped])
        await asyncio.sleep(_PAUSE_S)


def _say(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
