"""The process that the tour kills: it works on one queue without end and prints a line per answer.

Before an ack it prints what it is about to do. So the reader knows three kinds of jobs when it is killed: those whose
command was acknowledged, those that were never touched, and the few whose last command has no answer.
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
    """Return the payload of a job, made from its seq, so that a reader can check it."""
    return b'{"order":%d,"sum":%d}' % (seq, seq * 7919 % 10_007)


async def work(directory: str) -> None:
    """Produce, claim and ack until this process is killed, or for ``_ROUNDS_MAX`` rounds."""
    broker = await Broker.open(directory)
    await broker.put_topic(QUEUE, {"type": "queue", "durability": "fsync", "lease_ms": LEASE_MS})
    _report("opened", pid=os.getpid())
    seq = 0
    for _ in range(_ROUNDS_MAX):
        produced = await broker.produce(QUEUE, [job(seq + n) for n in range(1, JOBS_PER_ROUND + 1)])
        seq = produced.last_seq
        _report("produced", seqs=list(produced.seqs))
        claim = await broker.claim(QUEUE, node=NODE, max_count=_CLAIMED_PER_ROUND)
        _report("claimed", seqs=claim.seqs, deadline=claim.deadline)
        done = claim.seqs[:_ACKED_PER_ROUND]
        _report("acking", seqs=done)
        skipped = (await broker.ack(QUEUE, node=NODE, seqs=done)).skipped
        _report("acked", seqs=[each for each in done if each not in skipped])
        await asyncio.sleep(_PAUSE_S)


def _report(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
