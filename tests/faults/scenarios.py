"""Whole stories on one disk, each short enough that every one of its disk calls can fail in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import Ledger, Session

Story = Callable[[Session], None]


class Scenario(NamedTuple):
    """``before`` runs undisturbed, ``story`` with one call failing; ``copies`` as for ``survive``."""

    name: str
    before: Story
    story: Story
    copies: int = 1


def nothing(session: Session) -> None:
    pass


def a_queue(session: Session) -> None:
    session.queue(lease_ms=1000)


def produce_and_sync(session: Session) -> None:
    session.queue()
    for count in (1, 3):
        session.produce(count)
        session.write()
        session.produce(2, idempotency_key=f"key-{count}")
        session.sync()
    session.produce(1)
    session.close()


def claim_and_ack(session: Session) -> None:
    session.produce(6)
    session.sync()
    first = session.claim(2)
    second = session.claim(2, node="other")
    session.ack(first)
    session.sync()
    session.clock.advance(1001)
    session.ack(session.claim(2, node="third"))
    session.write()
    assert second.seqs == [3, 4]
    session.close()


def nack(session: Session) -> None:
    session.produce(4)
    session.sync()
    session.nack(session.claim(2), delay_ms=500, reason="later")
    session.nack(session.claim(1))
    session.sync()
    session.clock.advance(600)
    session.ack(session.claim(2))
    session.close()


def a_strict_queue(session: Session) -> None:
    session.queue(lease_ms=1000, max_deliveries=1, dead_letter="dead")


def dead_letter(session: Session) -> None:
    session.produce(4)
    session.sync()
    session.nack(session.claim(2))
    session.write()
    session.ack(session.claim(1))
    session.sync()
    assert session.engine.state.topics["dead"].count == 2
    session.nack(session.claim(1), dead=True, reason="poison")
    session.close()


def parked(session: Session) -> None:
    session.queue("b", max_deliveries=1, dead_letter="copies", dlq_strategy="block_and_dlq")
    session.produce(2, to="b")
    session.sync()
    session.nack(session.claim(1, name="b"))
    session.claim(1, name="b")
    session.sync()
    session.redrive("b")
    session.close()


def redrive(session: Session) -> None:
    session.produce(3)
    session.sync()
    session.nack(session.claim(2), dead=True)
    session.sync()
    session.redrive("dead", limit=1)
    session.sync()
    session.redrive("dead", reset_deliveries=False)
    session.close()


def roll(session: Session) -> None:
    for _ in range(9):
        session.produce(2, size=400)
        session.write()
    session.sync()
    session.produce(1, size=6000)
    session.sync()
    assert len(session.log.segments()) > 3
    session.close()


def old_segments(session: Session) -> None:
    session.queue(lease_ms=1000)
    session.produce(2, to="kept", size=100, config={"durability": "fsync"})
    for _ in range(6):
        session.produce(4, size=300)
        session.sync()
        claim = session.claim(4)
        session.ack(claim)
    session.produce(3, size=200)
    session.claim(1, lease_ms=5000)
    session.sync()


def trim(session: Session) -> None:
    session.produce(2, size=500)
    session.trim()
    session.sync()
    session.ack(session.claim(2))
    session.trim()
    assert session.log.segments()[0].number > 2
    session.produce(1)
    session.close()


def checkpoint(session: Session) -> None:
    session.produce(3, size=300)
    session.checkpoint()
    session.ack(session.claim(1))
    session.checkpoint()
    session.produce(2, size=900)
    session.claim(1)
    session.checkpoint()
    session.produce(1)
    session.close()


def a_router(session: Session) -> None:
    session.queue("dest", lease_ms=1000)
    session.route("r", source="src", dest="dest")
    session.produce(1, to="src", config={"durability": "fsync"})
    session.sync()


def forward(session: Session) -> None:
    for count in (2, 1):
        session.produce(count, to="src")
        session.sync()
        session.forward("src")
    session.sync()
    claim = session.claim(2, name="dest")
    session.ack(claim, copies=True)
    session.produce(1, to="src")
    session.sync()
    session.forward("src")
    session.close()


def unfinished(session: Session) -> None:
    """What a crash leaves to a recovery: several segments, a checkpoint, a lease, and a tail nobody synced."""
    old_segments(session)
    session.checkpoint()
    session.trim()
    session.produce(2, size=300)
    session.write()
    session.produce(1)
    session.engine.write()


SCENARIOS = [
    Scenario("produce and sync", nothing, produce_and_sync),
    Scenario("claim and ack", a_queue, claim_and_ack),
    Scenario("nack", a_queue, nack),
    Scenario("dead letter", a_strict_queue, dead_letter),
    Scenario("park", nothing, parked, copies=2),
    Scenario("redrive", a_strict_queue, redrive),
    Scenario("roll", a_queue, roll),
    Scenario("trim", old_segments, trim),
    Scenario("checkpoint", a_queue, checkpoint),
    Scenario("forward", a_router, forward, copies=2),
]


def started(scenario: Scenario, seed: int) -> tuple[SimDisk, Ledger, ManualClock]:
    """The disk a scenario begins on, with everything before it closed and kept."""
    disk, ledger, clock = SimDisk(seed), Ledger(), ManualClock()
    session = Session(disk, ledger, clock)
    scenario.before(session)
    session.close()
    ledger.close_books(power_lost=True)
    return disk, ledger, clock
