"""Clocks jump, machines restart, processes stop: leases end when they should, and never twice."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest

from tenure import Broker
from tenure.contract.replies import Grant
from tenure.core.events import Acked, Extended, Released
from tenure.errors import Conflict, LeaseLost
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.faults.world import Ledger, Session, check_fold, check_leases, events_of, survive
from tests.kit import run

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
JUMPS = [HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 3650 * DAY_MS, -3650 * DAY_MS]
LEASE_MS = 10_000


def opened(clock: ManualClock | None = None, **config: Any) -> Session:
    session = Session(SimDisk(1), Ledger(), clock or ManualClock())
    session.queue(lease_ms=LEASE_MS, **config)
    session.produce(4)
    session.sync()
    return session


def restarted(session: Session, clock: ManualClock) -> Session:
    ledger = deepcopy(session.ledger)
    ledger.close_books(power_lost=False)
    return Session(session.disk.kill(), ledger, clock)


def judged(session: Session) -> None:
    check_fold(session.engine)
    check_leases(events_of(session.engine))
    session.sync()
    survive(session.disk.crash("lost"), session.ledger, session.clock, power_lost=True)


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_fault_21_a_jump_of_the_wall_clock_expires_nothing_and_makes_nothing_immortal(jump_ms: int) -> None:
    session = opened()
    session.claim(2)
    session.clock.jump_wall(jump_ms)
    assert session.claim(10, node="other").seqs == [3, 4], "no mass expiry"
    session.clock.advance(LEASE_MS)
    assert not session.claim(10, node="third").jobs, "at the deadline the lease still stands"
    session.clock.advance(1)
    assert session.claim(10, node="third").seqs == [1, 2, 3, 4], "no immortal lease"
    judged(session)


@pytest.mark.parametrize("jump_ms", JUMPS)
def test_fault_21_a_jump_while_the_broker_is_down_changes_no_lease(jump_ms: int) -> None:
    """Fault 21: the machine has not rebooted, so its uptime tells how long the broker was gone."""
    session = opened()
    session.claim(2)
    session.sync()
    clock = deepcopy(session.clock)
    clock.jump_wall(jump_ms)
    clock.advance(LEASE_MS - 100)
    again = restarted(session, clock)
    assert again.claim(10, node="other").seqs == [3, 4]
    clock.advance(101)
    assert again.claim(10, node="other").seqs == [1, 2]
    judged(again)


@pytest.mark.parametrize("jump_ms", JUMPS)
async def test_fault_21_waiters_wake_by_the_time_that_passed_and_not_by_the_wall(jump_ms: int) -> None:
    clock = ManualClock()
    async with await Broker.open(clock=clock) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": LEASE_MS})
        await broker.produce("q", [b"1"])
        await broker.claim("q", node="w")

        async def waits() -> Grant:
            return await broker.claim("q", node="other", wait_ms=30_000)

        waiting = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        clock.jump_wall(jump_ms)
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(LEASE_MS + 1)
        claim = await waiting
        assert claim.seqs == [1]
        assert claim.deliveries(1) == 2
        assert claim.deadline == clock.wall_ms() + LEASE_MS


@pytest.mark.parametrize("off_ms", [0, 5_000, LEASE_MS + 5_000, -HOUR_MS, 3650 * DAY_MS])
def test_fault_22_a_reboot_costs_at_most_one_lease_and_never_makes_two_holders(off_ms: int) -> None:
    """Fault 22: the monotonic clock starts anew and only the wall clock tells how long it was; it may lie."""
    session = opened()
    first = session.claim(2)
    session.sync()
    clock = deepcopy(session.clock)
    clock.advance(1_000)
    clock.reboot(off_ms=off_ms)
    again = restarted(session, clock)
    passed = max(0, 1_000 + off_ms)
    taken = again.claim(10, node="other").seqs
    assert taken == ([1, 2, 3, 4] if passed > LEASE_MS else [3, 4])
    outcome = run.ack(again.engine, "q", node="w", seqs=first.seqs).reply
    assert outcome.count == (0 if passed > LEASE_MS else 2), "either it still holds, or somebody else does"
    clock.advance(LEASE_MS + 1)
    assert again.claim(10, node="third").seqs == ([1, 2, 3, 4] if passed > LEASE_MS else [3, 4])
    check_fold(again.engine)
    check_leases(events_of(again.engine))


@pytest.mark.parametrize("years", [0, 1, 10])
def test_fault_21_a_hardware_clock_that_is_wrong_at_boot_evicts_and_forgets_nothing(
    years: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 21: log time never goes back, so what a wrong clock lets pass at boot would be lost for good."""
    session = opened()
    session.call(run.put_topic, "t", {"ttl_ms": 7 * DAY_MS})
    session.call(run.produce, "t", [b"kept"] * 10, client_id="c", client_seq=1)
    session.sync()
    session.clock.reboot(off_ms=30_000)
    session.clock.jump_wall(years * 365 * DAY_MS)
    again = restarted(session, session.clock)
    assert ("check that clock" in caplog.text) == (years > 0)
    session.clock.jump_wall(-years * 365 * DAY_MS)
    session.clock.advance(60_000)
    assert len(again.call(run.diff, "t").records) == 10
    with pytest.raises(Conflict):
        again.call(run.produce, "t", [b"kept"] * 10, client_id="c", client_seq=1)
    assert again.engine.now() - session.engine.state.log_ms <= again.engine.settings.reboot_ms_max + 90_000


def test_fault_22_many_restarts_do_not_keep_a_lease_alive() -> None:
    """Fault 22: at most one grace period, however often the machine restarts with a clock that stands still."""
    session = opened()
    session.claim(2)
    session.sync()
    clock = deepcopy(session.clock)
    for _ in range(12):
        clock.advance(1_000)
        session = restarted(session, clock)
        session.sync()
    assert session.claim(10, node="other").seqs == [1, 2, 3, 4]
    judged(session)


def test_fault_23_a_server_that_stood_still_longer_than_a_lease_hands_the_work_on() -> None:
    """Fault 23 with a clock by hand; with a stopped process in tests/acceptance."""
    session = opened()
    first = session.claim(2)
    session.clock.advance(LEASE_MS * 5)
    late = run.ack(session.engine, "q", node="w", seqs=first.seqs).reply
    assert (late.count, late.skipped) == (0, [1, 2])
    second = session.claim(2, node="other")
    assert second.seqs == [1, 2]
    assert second.deliveries(1) == 2
    session.ack(second)
    judged(session)


@pytest.mark.parametrize("reclaimed", [False, True], ids=["nobody took it", "another holds it"])
def test_fault_24_a_worker_that_was_stopped_longer_than_its_lease_is_fenced(reclaimed: bool) -> None:
    """Fault 24: ack, nack and extend skip, strict ones say so, and nothing is written for any of them."""
    session = opened()
    claim = session.claim(2)
    session.clock.advance(LEASE_MS + 1)
    if reclaimed:
        session.claim(2, node="other")
    before = len(events_of(session.engine))
    held = {"node": "w", "seqs": claim.seqs, "lease_ids": [claim.lease_id] * 2}
    for late in (
        run.ack(session.engine, "q", **held),  # type: ignore[arg-type]
        run.nack(session.engine, "q", **held),  # type: ignore[arg-type]
        run.extend(session.engine, "q", lease_ms=1000, **held),  # type: ignore[arg-type]
    ):
        assert late.reply.skipped == [1, 2]
    for command in (run.ack, run.nack):
        with pytest.raises(LeaseLost):
            command(session.engine, "q", strict=True, **held)  # type: ignore[arg-type]
    assert len(events_of(session.engine)) == before
    judged(session)


def test_fault_24_the_same_node_that_claims_again_is_not_fooled_by_its_own_old_lease() -> None:
    """Fault 24: what it writes downstream carries the lease id, and ids are never used twice, also after a restart."""
    session = opened()
    old = session.claim(2)
    session.clock.advance(LEASE_MS + 1)
    new = session.claim(2)
    assert new.seqs == old.seqs
    assert new.lease > old.lease, "a later holder has the higher fencing number"
    stale = run.ack(session.engine, "q", node="w", seqs=old.seqs, lease_ids=[old.lease_id] * 2).reply
    assert stale.skipped == old.seqs
    session.write()
    world = session.disk.crash("lost")
    again = Session(world, Ledger(), deepcopy(session.clock))
    newest = again.claim(2)
    assert newest.lease > new.lease, "not even where the event of the last lease was lost"


@pytest.mark.parametrize("command", ["ack", "nack", "extend"])
def test_fault_25_at_the_deadline_the_holder_wins_and_one_millisecond_later_it_has_lost(command: str) -> None:
    """Fault 25: both orders of the race, by log time, and the replay decides alike."""
    for late_ms, wins in ((0, True), (1, False)):
        session = opened()
        claim = session.claim(1)
        session.clock.advance(LEASE_MS + late_ms)
        options = {"lease_ms": 500} if command == "extend" else {}
        reply = getattr(run, command)(session.engine, "q", node="w", seqs=claim.seqs, **options).reply
        assert reply.skipped == ([] if wins else [1])
        taken = session.claim(1, node="other").seqs
        assert taken == [1 if (command == "nack" or not wins) else 2]
        kinds = [type(event) for event in events_of(session.engine)]
        assert ({"ack": Acked, "nack": Released, "extend": Extended}[command] in kinds) == wins
        check_fold(session.engine)
        check_leases(events_of(session.engine))


async def test_fault_25_a_long_poll_and_a_late_ack_in_one_turn_have_one_winner() -> None:
    """Fault 25: whoever comes first in log order wins; the other is told, or waits on."""
    clock = ManualClock()
    log = MemoryLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": LEASE_MS})
        for ack_first in (True, False):
            await broker.produce("q", [b"1"])
            held = await broker.claim("q", node="w")

            async def waits() -> Grant:
                return await broker.claim("q", node="other", wait_ms=30_000)

            waiting = asyncio.ensure_future(waits())
            await asyncio.sleep(0)
            clock.advance(LEASE_MS)
            if ack_first:
                assert (await broker.ack("q", node="w", seqs=held.seqs)).count == 1
                clock.advance(20_001)
                assert not (await waiting).jobs
            else:
                clock.advance(1)
                got = await waiting
                assert got.seqs == held.seqs
                assert (await broker.ack("q", node="w", seqs=held.seqs)).skipped == held.seqs
                assert (await broker.ack("q", node="other", seqs=got.seqs)).count == 1
