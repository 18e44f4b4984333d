"""Several workers on one queue, some careless, which produce the events for the tour's report."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from tenure.broker.broker import Broker
from tenure.cli.tour.checks import expect
from tenure.contract.records import Record

__all__ = ["JOBS", "POISON", "QUEUE", "work_as_a_crowd"]

QUEUE = "orders"
JOBS = 600
POISON = {137, 400, 401}
"""Seqs that no worker can process: each is delivered three times, then dead-lettered."""
_DEAD = f"{QUEUE}.dead"
_LEASE_MS = 1_500
_SEED = 7


async def work_as_a_crowd(directory: Path) -> None:
    """Produce jobs and process them with three workers, one of which forgets claims; check the result."""
    config = {
        "type": "queue",
        "durability": "disk",
        "lease_ms": _LEASE_MS,
        "max_deliveries": 3,
        "dead_letter": _DEAD,
    }
    async with await Broker.open(directory) as broker:
        await broker.put_topic(QUEUE, config)
        async with asyncio.TaskGroup() as crowd:
            crowd.create_task(_produce(broker))
            for number, node in enumerate(("ann", "bob", "cat")):
                crowd.create_task(_work(broker, node, random.Random(_SEED + number)))
        about = broker.topic(QUEUE)
        expect(about.count == 0, "the crowd leaves no job behind")
        expect(broker.topic(_DEAD).count >= len(POISON), "the poisonous jobs are dead letters")


async def _produce(broker: Broker) -> None:
    for first in range(0, JOBS, 20):
        orders = [
            json.dumps({"order": number, "cents": 100 + number % 50}).encode() for number in range(first, first + 20)
        ]
        await broker.produce(QUEUE, [Record(data=order) for order in orders])
        await asyncio.sleep(0.01)


async def _work(broker: Broker, node: str, dice: random.Random) -> None:
    """Claim and settle until the queue stays empty. Bob forgets a claim now and then, and its lease runs out."""
    while True:
        claim = await broker.claim(QUEUE, node=node, max_count=8, wait_ms=50)
        if not claim.jobs:
            if broker.topic(QUEUE).count == 0 and broker.topic(QUEUE).next_seq > JOBS:
                return
            continue
        await asyncio.sleep(dice.uniform(0.002, 0.02))
        fresh = {seq for seq in claim.seqs if claim.deliveries(seq) == 1}
        if node == "bob" and len(fresh) == len(claim.seqs) and dice.random() < 0.15:
            continue
        busy = {seq for seq in fresh if dice.random() < 0.03}
        if done := [seq for seq in claim.seqs if seq not in busy | POISON]:
            await broker.ack(QUEUE, node=node, seqs=done)
        for seq in sorted(POISON.intersection(claim.seqs)):
            await broker.nack(QUEUE, node=node, seqs=[seq], reason="no such customer")
        if given_back := sorted(busy - POISON):
            await broker.nack(QUEUE, node=node, seqs=given_back, reason="card service busy")
