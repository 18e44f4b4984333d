"""Everything at once, in any order, through many crashes: what no single story would have thought of."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from tenure.contract.records import Record
from tenure.contract.replies import Grant
from tenure.errors import NotFound, Overloaded
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import Ledger, Session, check_fold, check_leases, events_of, records, survive
from tests.kit import run as command

LIVES = 6


class Soak:
    """One seed's actions on whatever session is open."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.client_seq = 0
        self.held: list[Grant] = []
        self.actions = [
            (5, self.put_topic),
            (30, self.produce),
            (20, self.claim),
            (17, self.settle),
            (6, lambda session: session.write()),
            (6, lambda session: session.sync()),
            (4, lambda session: session.trim()),
            (2, lambda session: session.checkpoint()),
            (3, self.redrive),
            (2, self.forward),
            (1, self.delete),
            (4, lambda session: session.clock.advance(self.random.choice((10, 600, 1500)))),
        ]

    def act(self, session: Session) -> None:
        [action] = self.random.choices([each for _, each in self.actions], [weight for weight, _ in self.actions])
        with suppress(Overloaded):  # a cap of the queue
            action(session)

    def put_topic(self, session: Session) -> None:
        pick = self.random.choice
        name = pick(("q1", "q2", "q3", "log"))
        config: dict[str, Any] = {}
        if name != "log":
            config = {
                "type": "queue",
                "lease_ms": 1_000,
                "durability": pick(("fsync", "disk")),
                "max_deliveries": pick((0, 2)),
                "dead_letter": pick((None, "dead")),
                "dlq_strategy": pick(("skip", "block")),
                "retry_backoff": pick((None, {"min_ms": 100, "max_ms": 1_000})),
                "max_ack_holes": pick((0, 0, 3)),
                "max_in_flight": pick((0, 0, 10)),
            }
        session.call(command.put_topic, name, config)

    def produce(self, session: Session) -> None:
        names = sorted(session.engine.state.topics)
        if not names:
            return
        name, pick = self.random.choice(names), self.random.choice
        is_queue = session.engine.state.topics[name].queue is not None
        payloads = self.ledger.payloads(pick((1, 1, 4)), size=pick((0, 80, 600)))
        made = [
            payload
            if pick((True, False))
            else Record(
                data=payload,
                tag=pick((None, "a", "b.c")),
                node=pick((None, "n")),
                meta=pick((None, b'{"x":1}')),
                delay_ms=pick((0, 500)) if is_queue else 0,
            )
            for payload in payloads
        ]
        named: dict[str, Any] = {}
        if self.random.random() < 0.2:
            named["idempotency_key"] = f"key-{self.random.randrange(1 << 30)}"
        if self.random.random() < 0.2:
            self.client_seq += 1
            named |= {"client_id": "client", "client_seq": self.client_seq}
        batch = session.call(command.produce, name, made, **named).batch
        self.ledger.open.append((batch, "produce", payloads))

    def queues(self, session: Session) -> list[str]:
        return sorted(name for name, topic in session.engine.state.topics.items() if topic.queue is not None)

    def claim(self, session: Session) -> None:
        if names := self.queues(session):
            pick = self.random.choice
            self.held.append(session.claim(pick((1, 3, 8)), name=pick(names), node=pick("ab")))

    def settle(self, session: Session) -> None:
        if not self.held:
            return
        claim = self.held.pop(self.random.randrange(len(self.held)))
        topic = session.engine.state.topics.get(claim.topic)
        if topic is None or topic.queue is None:
            return
        session.engine.state.pass_time(topic, session.engine.now())
        if not claim.lease or topic.queue.held(claim.lease) != claim.seqs:
            return
        named = {"node": claim.node, "seqs": claim.seqs}
        choice = self.random.random()
        if choice < 0.6:
            session.ack(claim)
        elif choice < 0.8:
            session.nack(claim, delay_ms=self.random.choice((None, 0, 300)), reason="later")
        elif choice < 0.9:
            named["seqs"] = claim.seqs[:2]
            session.call(command.extend, claim.topic, lease_ms=self.random.choice((200, 5_000)), **named)
            self.held.append(claim)
        else:
            if topic.config.dead_letter is None:
                self.ledger.released.update(job.data for job in claim.jobs)
            session.nack(claim, dead=True)

    def redrive(self, session: Session) -> None:
        names = [*self.queues(session), *(name for name in ("dead",) if name in session.engine.state.topics)]
        if names:
            with suppress(NotFound):  # where the letters came from is gone
                reset = self.random.random() < 0.7
                session.redrive(self.random.choice(names), limit=3, reset_deliveries=reset)

    def forward(self, session: Session) -> None:
        if "log" in session.engine.state.topics:
            session.route("copier", source="log", dest="copied")
            session.forward("log")

    def delete(self, session: Session) -> None:
        names = sorted(session.engine.state.topics)
        if not names:
            return
        name = self.random.choice(names)
        self.ledger.released.update(everything(session, name))
        if self.random.random() < 0.3:
            session.call(command.delete_topic, name)
        else:
            session.call(command.delete_records, name, match=self.random.choice(("a", ["tag", "Glob", "b*"])))


def everything(session: Session, name: str) -> list[bytes]:
    """Every record of a topic, also those that are not synced yet."""
    topic = session.engine.state.topics[name]
    durable_seq, topic.durable_seq = topic.durable_seq, topic.head_seq
    try:
        return records(session.engine, name)
    finally:
        topic.durable_seq = durable_seq


def run(seed: int) -> None:
    soak, clock, disk = Soak(seed), ManualClock(), SimDisk(seed)
    random = soak.random
    for _ in range(LIVES):
        session = Session(disk, soak.ledger, clock)
        soak.held = []
        for _ in range(random.randrange(80)):
            soak.act(session)
        check_fold(session.engine)
        check_leases(events_of(session.engine))
        soak.ledger.note(session.engine)
        power_lost = random.random() < 0.6
        disk = disk.crash("any", seed=random.getrandbits(32)) if power_lost else disk.kill()
        if random.random() < 0.3:
            clock.reboot(off_ms=random.choice((0, 500, 5_000)))
        # A router copies, and a redriven letter may have been copied before: only what is lost or undone counts here.
        survive(disk.kill(), soak.ledger, deepcopy(clock), power_lost=power_lost, copies=1_000)
        soak.ledger.close_books(power_lost=power_lost)


@pytest.mark.parametrize("seed", range(60))
def test_fault_44_anything_in_any_order_through_six_crashes(seed: int) -> None:
    """Faults 1, 2, 6, 20, 22, 38, 39, 42, 43, 44."""
    run(seed)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_fault_44_anything_in_any_order_through_many_more_crashes(block: int) -> None:
    for seed in range(1_000 + block * 250, 1_250 + block * 250):
        run(seed)
