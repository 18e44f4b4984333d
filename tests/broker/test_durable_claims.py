"""Claims that wait for their sync, on queues with durable leases: one lease, one entry, however often it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tenure import Broker
from tenure.contract.replies import Grant
from tenure.core.events import Extended, decode
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, numbers, start, turn

LEASE_MS = 30_000


@pytest.fixture
async def log() -> AsyncIterator[GatedLog]:
    log = GatedLog()
    yield log
    log.gate.set()


@pytest.fixture
async def slow(log: GatedLog, clock: ManualClock) -> AsyncIterator[Broker]:
    """A broker with two jobs whose claims are synced only while the gate is open."""
    async with await Broker.open(log, clock=clock) as broker:
        await make_queue(broker, jobs=2, leases_durable=True, lease_ms=LEASE_MS)
        await broker.synced()
        yield broker
        log.gate.set()


def extended(log: GatedLog) -> list[Extended]:
    events = [decode(kind, body) for kind, _, _, body in log.replay() if kind >= 16]
    return [event for event in events if isinstance(event, Extended)]


async def claim_slowly(broker: Broker, log: GatedLog, **options: object) -> asyncio.Future[Grant]:
    log.gate.clear()
    return await start(broker.claim("q", node="w", max_count=2, **options))  # type: ignore[arg-type]


async def test_a_repeat_of_a_claim_that_waits_is_answered_with_it(slow: Broker, log: GatedLog) -> None:
    first = await claim_slowly(slow, log, claim_id="c")
    repeat = await start(slow.claim("q", node="w", max_count=2, claim_id="c"))
    assert not first.done()
    assert not repeat.done()
    log.gate.set()
    one, two = await asyncio.gather(first, repeat)
    assert (one.lease_id, one.deadline, one.seqs) == (two.lease_id, two.deadline, two.seqs)


async def test_a_repeat_of_what_was_answered_has_no_job_that_was_lost_meanwhile(slow: Broker, log: GatedLog) -> None:
    claim = await slow.claim("q", node="w", max_count=2, claim_id="c")
    log.gate.clear()
    slow.produce("other", [b"keeps the disk busy"])
    repeat = await start(slow.claim("q", node="w", max_count=2, claim_id="c"))
    slow.nack("q", node="w", seqs=claim.seqs[:1])
    assert (await slow.claim("q", node="v", auto_ack=True, max_count=1)).seqs == claim.seqs[:1]
    log.gate.set()
    assert (await repeat).seqs == claim.seqs[1:]


async def test_a_repeat_goes_on_where_the_first_caller_is_gone(slow: Broker, log: GatedLog) -> None:
    first = await claim_slowly(slow, log, claim_id="c")
    repeat = await start(slow.claim("q", node="w", max_count=2, claim_id="c"))
    first.cancel()
    await turn()
    log.gate.set()
    claim = await repeat
    assert claim.seqs == [1, 2]
    assert [claim.deliveries(seq) for seq in claim.seqs] == [1, 1]
    assert (await slow.ack("q", node="w", lease_id=claim.lease_id)).count == 2


async def test_a_claim_with_an_id_that_is_cancelled_burns_no_delivery_for_its_repeat(
    slow: Broker, log: GatedLog
) -> None:
    """Fault 28: its connection broke, and the client asks again."""
    first = await claim_slowly(slow, log, claim_id="c")
    first.cancel()
    await turn()
    log.gate.set()
    claim = await slow.claim("q", node="w", max_count=2, claim_id="c")
    assert [claim.deliveries(seq) for seq in claim.seqs] == [1, 1]


async def test_a_claim_without_an_id_that_is_cancelled_while_it_waits_is_given_back(
    slow: Broker, log: GatedLog
) -> None:
    first = await claim_slowly(slow, log)
    assert numbers(slow)["in_flight"] == 2
    first.cancel()
    await turn()
    assert numbers(slow)["in_flight"] == 0


@pytest.mark.parametrize("left_ms", [0, 1, 2, 15_000])
async def test_a_repeat_at_the_end_of_a_lease_neither_prolongs_it_nor_stops_the_loop(
    slow: Broker, log: GatedLog, clock: ManualClock, left_ms: int
) -> None:
    claim = await slow.claim("q", node="w", claim_id="c")
    clock.advance(LEASE_MS - left_ms)
    log.gate.clear()
    writing = slow.produce("other", [b"x"])
    repeat = await start(slow.claim("q", node="w", claim_id="c"))
    clock.advance(left_ms)
    await turn()
    log.gate.set()
    assert (await repeat).deadline == claim.deadline
    await writing
    assert extended(log) == [], "it is durable, and what is left of it is its worker's"
    clock.advance(1)
    assert (await slow.claim("q", node="v")).seqs == [1]


async def test_a_long_sync_takes_few_events_to_bridge(slow: Broker, log: GatedLog, clock: ManualClock) -> None:
    first = await claim_slowly(slow, log, lease_ms=1_000)
    for _ in range(640):
        clock.advance(100)
        await asyncio.sleep(0)
    assert numbers(slow)["in_flight"] == 2, "a sync of 64 s does not end a lease of one"
    assert len(extended(log)) <= 8
    log.gate.set()
    claim = await first
    assert claim.deadline == clock.wall_ms() + 1_000, "the worker has its whole lease"


async def test_leases_that_wait_together_are_prolonged_together(
    slow: Broker, log: GatedLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted: as many claims as there are milliseconds need a few alarms, not one each."""
    await slow.produce("q", [b"x"] * 100)
    log.gate.clear()
    claims = []
    for _ in range(100):
        claims.append(await start(slow.claim("q", node="w")))
        clock.advance(1)
    rings = 0
    keep = slow._serving.claims._keep

    def counted() -> None:
        nonlocal rings
        rings += 1
        keep()

    monkeypatch.setattr(slow._serving.claims, "_keep", counted)
    slow._serving.claims._alarm = None
    slow._serving.claims._watch(clock.wall_ms())
    for _ in range(400):
        clock.advance(100)
        await asyncio.sleep(0)
    assert 1 < rings <= 6
    assert numbers(slow)["in_flight"] == 100
    log.gate.set()
    await asyncio.gather(*claims)


async def test_a_claim_whose_jobs_were_deleted_while_it_waited_is_answered_without_them(
    slow: Broker, log: GatedLog
) -> None:
    first = await claim_slowly(slow, log)
    slow.delete_records("q", seqs=[1])
    log.gate.set()
    assert (await first).seqs == [2]
    second = await claim_slowly(slow, log)
    assert second.done()


async def test_a_claim_on_a_queue_that_is_deleted_while_it_waits_is_answered_empty(slow: Broker, log: GatedLog) -> None:
    first = await claim_slowly(slow, log)
    slow.delete_topic("q")
    log.gate.set()
    claim = await first
    assert (claim.jobs, claim.lease_id) == ([], None)


async def test_a_claim_that_waits_while_the_broker_closes_is_answered_with_what_is_durable(
    log: GatedLog, clock: ManualClock
) -> None:
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, jobs=1, leases_durable=True, lease_ms=LEASE_MS)
    await broker.synced()
    first = await claim_slowly(broker, log)
    deadline = clock.wall_ms() + LEASE_MS
    clock.advance(LEASE_MS // 4)
    closing = await start(broker.close())
    log.gate.set()
    assert (await asyncio.wait_for(first, 10)).deadline == deadline
    await closing


async def test_a_repeat_of_a_claim_that_was_extended_in_part_has_the_earliest_deadline(
    slow: Broker, clock: ManualClock
) -> None:
    claim = await slow.claim("q", node="w", max_count=2, claim_id="c")
    await slow.extend("q", node="w", seqs=[1], lease_ms=2 * LEASE_MS)
    assert (await slow.claim("q", node="w", claim_id="c")).deadline == claim.deadline
    await slow.ack("q", node="w", seqs=[2])
    assert (await slow.claim("q", node="w", claim_id="c")).deadline == clock.wall_ms() + 2 * LEASE_MS
