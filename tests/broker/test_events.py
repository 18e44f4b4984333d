"""Following the life of jobs: every kind, in order, and never without bound."""

from __future__ import annotations

import asyncio

import pytest

from tenure import Broker, NotFound, Overloaded, Record, Settings
from tenure.contract.replies import Lifecycle
from tenure.testing.clock import ManualClock
from tests.kit.brokers import fail_by_expiry, make_queue, start, turn


def kinds(rows: list[Lifecycle]) -> list[str]:
    return [row.event for row in rows]


async def test_a_whole_life_is_told_step_by_step(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    events = broker.events("q")
    await broker.produce("q", [b"1", b"2"])
    claim = await broker.claim("q", node="w", max_count=2, lease_ms=1000)
    clock.advance(10)
    extension = await broker.extend("q", node="w", seqs=[1], lease_ms=2000)
    await broker.nack("q", node="w", seqs=[1], reason="busy")
    await broker.ack("q", node="w", seqs=[2])
    produced, claimed, extended, released, acked = events.drain()
    at = clock.wall_ms()
    assert produced == Lifecycle("produced", "q", at - 10, [1, 2])
    assert claimed == Lifecycle("claimed", "q", at - 10, [1, 2], "w", claim.lease_id, 1, claim.deadline)
    assert extended == Lifecycle("extended", "q", at, [1, 1], "w", claim.lease_id, 1, extension.deadlines[1])
    assert released == Lifecycle("released", "q", at, [1, 1], "w", claim.lease_id, 1, reason="busy")
    assert acked == Lifecycle("acked", "q", at, [2, 1], "w", claim.lease_id, 1)


async def test_an_expiry_is_told_before_the_claim_that_found_it_and_stamped_with_its_deadline(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1)
    events = broker.events("q")
    first = await broker.claim("q", node="a", lease_ms=1000)
    clock.advance(60_000)
    second = await broker.claim("q", node="b")
    claimed, expired, again = events.drain()
    assert (claimed.event, again.event) == ("claimed", "claimed")
    assert expired == Lifecycle("expired", "q", first.deadline, [1, 1], "a", first.lease_id, 1)
    assert (again.lease_id, again.deliveries, again.ts) == (second.lease_id, 2, clock.wall_ms())


async def test_an_expiry_is_told_as_soon_as_anybody_looks(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=2)
    await broker.claim("q", node="a", max_count=2, lease_ms=1000)
    events = broker.events()
    clock.advance(1001)
    broker.topic("q")
    assert kinds(events.drain()) == ["expired"]
    broker.topic("q")
    assert events.drain() == [], "once"


async def test_parts_of_a_lease_expire_apart(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=3)
    await broker.claim("q", node="a", max_count=3, lease_ms=1000)
    await broker.extend("q", node="a", seqs=[2], lease_ms=3000)
    events = broker.events()
    clock.advance(10_000)
    broker.topic("q")
    early, late = events.drain()
    assert (early.runs, late.runs) == ([1, 1, 3, 1], [2, 1])
    assert late.ts - early.ts == 2000, "in the order of their deadlines"


async def test_dead_letters_and_redrives_are_told(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    await fail_by_expiry(broker, clock)
    events = broker.events()
    await broker.claim("q", node="w")
    expired, produced, buried = events.drain()
    assert (expired.event, produced.event) == ("expired", "produced")
    assert (produced.topic, produced.runs, produced.origin) == ("dead", [1, 1], "q")
    assert (buried.event, buried.topic, buried.runs, buried.reason, buried.dest) == (
        "dead_lettered",
        "q",
        [1, 1],
        "max_deliveries",
        "dead",
    )
    await broker.redrive("dead")
    back, redriven = events.drain()
    assert (back.event, back.topic, back.runs, back.origin) == ("produced", "q", [2, 1], "dead")
    assert (redriven.event, redriven.topic, redriven.runs, redriven.dest) == ("redriven", "dead", [1, 1], "q")


async def test_parking_and_un_parking_are_told(broker: Broker) -> None:
    await make_queue(broker, jobs=1, dlq_strategy="block")
    await broker.claim("q", node="w")
    events = broker.events()
    await broker.nack("q", node="w", seqs=[1], dead=True, reason="no")
    await broker.redrive("q")
    parked, redriven = events.drain()
    assert (parked.event, parked.dest, parked.reason, parked.node) == ("dead_lettered", None, "no", "w")
    assert (redriven.event, redriven.topic, redriven.dest) == ("redriven", "q", "q")


async def test_a_disconnect_is_told_as_a_release(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w")
    events = broker.events()
    stream.close()
    (released,) = events.drain()
    assert (released.event, released.reason, released.node) == ("released", "disconnect", "w")


async def test_an_auto_ack_is_told_as_a_claim_and_an_ack(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    events = broker.events()
    await broker.claim("q", node="w", auto_ack=True)
    assert kinds(events.drain()) == ["claimed", "acked"]


async def test_rows_are_ranges_and_share_only_what_all_their_jobs_share(broker: Broker) -> None:
    await make_queue(broker, jobs=1000)
    events = broker.events()
    await broker.claim("q", node="w", max_count=1)
    await broker.nack("q", node="w", seqs=[1])
    await broker.claim("q", node="w", max_count=1000)
    await broker.ack("q", node="w", seqs=list(range(2, 1001)))
    _, _, claimed, acked = events.drain()
    assert (claimed.runs, claimed.deliveries) == ([1, 1000], None), "one was delivered before, the others not"
    assert (acked.runs, acked.deliveries) == ([2, 999], 1)


async def test_a_subscription_begins_now_and_hears_of_its_topic_only(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    mine, all_of_them = broker.events("q"), broker.events()
    await broker.produce("other", [b"1"])
    await broker.produce("q", [b"2"])
    assert [row.runs for row in mine.drain()] == [[2, 1]]
    assert [row.topic for row in all_of_them.drain()] == ["other", "q"]


async def test_a_subscription_to_what_is_not_there_is_refused(broker: Broker) -> None:
    with pytest.raises(NotFound):
        broker.events("q")


async def test_a_reader_waits_for_the_next_row(broker: Broker) -> None:
    await make_queue(broker)
    events = broker.events("q")
    reading = await start(anext(events))
    assert not reading.done()
    await broker.produce("q", [b"1"])
    await turn()
    assert reading.result().event == "produced"


async def test_a_reader_that_falls_behind_gets_what_was_kept_and_is_cut_off(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(subscriber_events_max=3)) as broker:
        await make_queue(broker)
        slow, quick = broker.events(), broker.events()
        for number in range(10):
            await broker.produce("q", [b"%d" % number])
            assert len(quick.drain()) == 1
        assert [(await anext(slow)).runs for _ in range(3)] == [[1, 1], [2, 1], [3, 1]]
        with pytest.raises(Overloaded) as error:
            await anext(slow)
        assert error.value.detail["limit"] == "subscriber_events_max"
        await broker.produce("q", [b"more"])
        assert slow.drain() == []
        assert len(quick.drain()) == 1, "others are not cut off with it"


async def test_a_closed_subscription_ends_and_costs_nothing(broker: Broker) -> None:
    await make_queue(broker)
    events = broker.events()
    reading = await start(anext(events))
    events.close()
    events.close()
    with pytest.raises(StopAsyncIteration):
        await reading
    assert broker._engine.listeners == []
    await broker.produce("q", [b"1"])
    assert events.drain() == []


async def test_subscriptions_end_with_the_broker(clock: ManualClock) -> None:
    broker = await Broker.open(None, clock=clock)
    await make_queue(broker)
    events = broker.events()
    reading = asyncio.ensure_future(_collect(events))
    await broker.produce("q", [b"1"])
    await broker.close()
    assert kinds(await reading) == ["produced"]


async def _collect(events: object) -> list[Lifecycle]:
    return [row async for row in events]  # type: ignore[attr-defined]


async def test_records_of_a_log_are_told_as_produced(broker: Broker) -> None:
    events = broker.events()
    await broker.produce("t", [Record(data=b"1", tag="x")])
    await broker.delete_records("t", before_seq=2)
    written_ms = broker.topic("t").last_write_ts
    assert written_ms is not None
    assert events.drain() == [Lifecycle("produced", "t", written_ms, [1, 1])]
