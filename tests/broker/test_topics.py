"""Topics as such: put, look, list, delete (contract, sections 2 and 3)."""

from __future__ import annotations

import pytest

from tenure import Broker, Conflict, Invalid, NotFound, Overloaded, Record, Settings
from tenure.broker.topics import put_topic
from tenure.core.config import DEFAULTS, as_dict
from tenure.testing.clock import ManualClock
from tests.broker.support import make_queue, numbers, read, seqs, snapshot, start, turn

# Put


async def test_a_put_creates_and_a_second_put_replaces(broker: Broker) -> None:
    info, created = await broker.put_topic("t", {"ttl_ms": 5000, "cap_records": 7})
    assert created
    assert (info.topic, info.type, info.config["ttl_ms"], info.config["cap_records"]) == ("t", "log", 5000, 7)
    info, created = await broker.put_topic("t", {"cap_records": 9})
    assert not created
    assert (info.config["ttl_ms"], info.config["cap_records"]) == (0, 9), "what is left out returns to its default"


async def test_a_topic_without_config_has_every_default_and_every_field(broker: Broker) -> None:
    info, _ = await broker.put_topic("t")
    assert info.config == as_dict(DEFAULTS)
    assert {"durable", "lease_ms", "max_ack_holes", "retry_backoff"} <= info.config.keys(), "on logs too"


async def test_the_type_stays_when_it_is_left_out_and_never_changes(broker: Broker) -> None:
    await broker.put_topic("q", {"type": "queue", "lease_ms": 500})
    info, _ = await broker.put_topic("q", {})
    assert (info.type, info.config["lease_ms"]) == ("queue", 30_000)
    before = snapshot(broker)
    with pytest.raises(Conflict) as error:
        broker.put_topic("q", {"type": "log"})
    assert error.value.code == "topic_exists_incompatible"
    assert snapshot(broker) == before


async def test_durable_is_another_word_for_fsync_and_durability_wins(broker: Broker) -> None:
    info, _ = await broker.put_topic("a", {"durable": True})
    assert (info.config["durability"], info.config["durable"]) == ("fsync", True)
    info, _ = await broker.put_topic("b", {"durable": True, "durability": "memory"})
    assert (info.config["durability"], info.config["durable"]) == ("memory", False)


async def test_a_put_that_lowers_a_cap_evicts_at_once(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2", b"3"])
    await broker.put_topic("t", {"cap_records": 1})
    assert seqs(await read(broker, "t")) == [3]


async def test_a_put_of_an_empty_list_is_not_a_put_of_nothing(broker: Broker) -> None:
    with pytest.raises(Invalid):
        broker.put_topic("t", [])  # type: ignore[arg-type]
    assert broker.topics().items == []


# Get


async def test_an_empty_log_says_where_it_will_begin(broker: Broker) -> None:
    await broker.put_topic("t")
    info = broker.topic("t")
    assert (info.head_seq, info.durable_seq, info.earliest_seq, info.next_seq) == (0, 0, 1, 1)
    assert (info.count, info.bytes, info.last_write_ts, info.queue) == (0, 0, 0, None)


async def test_a_topic_knows_what_it_holds(broker: Broker, clock: ManualClock) -> None:
    await broker.produce("t", [b"one", b"three"])
    await broker.delete_records("t", before_seq=2)
    info = broker.topic("t")
    assert (info.head_seq, info.earliest_seq, info.next_seq, info.count, info.bytes) == (2, 2, 3, 1, 5)
    assert info.last_write_ts == clock.wall_ms()


async def test_the_earliest_seq_of_a_topic_whose_records_are_gone_lies_above_its_head(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2"])
    await broker.delete_records("t", before_seq=99)
    info = broker.topic("t")
    assert (info.head_seq, info.earliest_seq, info.count, info.bytes) == (2, 3, 0, 0)


async def test_a_queue_counts_its_jobs_by_state(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=5, dlq_strategy="block")
    await broker.produce("q", [Record(data=b"later", delay_ms=1000)])
    await broker.claim("q", node="w", max_count=4)
    await broker.ack("q", node="w", seqs=[3])
    await broker.nack("q", node="w", seqs=[4], dead=True)
    clock.advance(250)
    assert numbers(broker) == {
        "ready": 1,
        "in_flight": 2,
        "delayed": 1,
        "parked": 1,
        "dead": 1,
        "dead_lettered": 1,
        "oldest_ready_ms": 250,
        "ack_holes": 1,
    }


async def test_the_oldest_ready_job_is_the_one_a_claim_would_get_next(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker)
    await broker.produce("q", [Record(data=b"1", delay_ms=10_000)])
    clock.advance(100)
    await broker.produce("q", [b"2"])
    clock.advance(30)
    assert numbers(broker)["oldest_ready_ms"] == 30
    await broker.claim("q", node="w", auto_ack=True)
    assert numbers(broker)["oldest_ready_ms"] == 0
    clock.advance(10_000)
    assert numbers(broker)["oldest_ready_ms"] == 10_130


async def test_an_absent_topic_is_not_found(broker: Broker) -> None:
    with pytest.raises(NotFound) as error:
        broker.topic("nothing")
    assert error.value.code == "topic_not_found"


async def test_a_priority_that_was_set_is_the_one_in_effect(broker: Broker) -> None:
    await broker.put_topic("t", {"priority": -7})
    assert broker.topic("t").effective_priority == -7


async def test_an_automatic_priority_fades_from_the_last_read(broker: Broker, clock: ManualClock) -> None:
    await broker.put_topic("t")
    assert broker.topic("t", touch=False).effective_priority == 0, "never read"
    await broker.diff("t")
    assert broker.topic("t", touch=False).effective_priority == 100
    clock.advance(5 * 60_000)
    assert broker.topic("t", touch=False).effective_priority == 95
    assert broker.topic("t").effective_priority == 100, "a look that counts as a read"
    clock.advance(1000 * 60_000)
    assert broker.topic("t", touch=False).effective_priority == 0
    await broker.put_topic("t", {"auto_priority": False})
    assert broker.topic("t").effective_priority == 0


# List


async def test_topics_are_listed_in_order_and_by_prefix(broker: Broker) -> None:
    for name in ("b.2", "a", "b.10", "c", "b"):
        await broker.put_topic(name)
    assert broker.topics().items == ["a", "b", "b.10", "b.2", "c"]
    assert broker.topics(prefix="b.").items == ["b.10", "b.2"]
    assert broker.topics(prefix="zz").items == []
    assert broker.topics(prefix="\ud800").items == [], "no name has it"


async def test_pages_follow_each_other_and_only_the_last_has_no_cursor(broker: Broker) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in [*names, "other"]:
        await broker.put_topic(name)
    found, cursor, pages = [], None, 0
    while True:
        page = broker.topics(prefix="t", limit=3, cursor=cursor)
        found += page.items
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    assert (found, pages) == (names, 3)
    assert broker.topics(prefix="t", limit=7).next_cursor is None, "a full last page is the last all the same"


async def test_a_listing_goes_on_behind_a_topic_that_was_deleted_meanwhile(broker: Broker) -> None:
    for name in "abcd":
        await broker.put_topic(name)
    page = broker.topics(limit=2)
    await broker.delete_topic("b")
    assert broker.topics(cursor=page.next_cursor).items == ["c", "d"]


@pytest.mark.parametrize("cursor", ["", "a", "====", "dDE6", "dDE6YQ==", "dDE6YQ=", "é", "dDE6YQ\n", "x" * 5000])
async def test_a_cursor_that_no_listing_gave_out_is_refused(broker: Broker, cursor: str) -> None:
    await broker.put_topic("q", {"type": "queue"})
    for listing in (broker.topics, broker.routers):
        with pytest.raises(Invalid):
            listing(cursor=cursor)
    for listing_of in (broker.jobs, broker.leases):
        with pytest.raises(Invalid):
            listing_of("q", cursor=cursor)


async def test_a_limit_of_zero_acts_as_one_and_a_large_one_is_clamped(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(page_max=2)) as broker:
        for name in "abc":
            await broker.put_topic(name)
        assert broker.topics(limit=0).items == ["a"]
        assert broker.topics(limit=1000).items == ["a", "b"]


async def test_the_number_of_topics_is_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(topics_max=2)) as broker:
        await broker.put_topic("a")
        await broker.produce("b", [b"1"])
        before = snapshot(broker)
        with pytest.raises(Overloaded) as error:
            broker.put_topic("c")
        assert error.value.detail == {"limit": "topics_max", "max": 2}
        with pytest.raises(Overloaded):
            broker.produce("c", [b"1"])
        assert snapshot(broker) == before
        await broker.put_topic("a", {"ttl_ms": 1})
        await broker.delete_topic("a")
        await broker.put_topic("c")


# Delete


async def test_deleting_what_is_not_there_is_no_error(broker: Broker) -> None:
    assert await broker.delete_topic("t") == (False, [])


async def test_a_deleted_topic_is_gone_with_its_records(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    assert await broker.delete_topic("t") == (True, [])
    assert broker.topics().items == []
    with pytest.raises(NotFound):
        broker.diff("t")


async def test_a_recreated_topic_starts_over(broker: Broker) -> None:
    await make_queue(broker, jobs=3, max_deliveries=1, dlq_strategy="block")
    old = await broker.claim("q", node="w", max_count=3)
    await broker.nack("q", node="w", seqs=[1], dead=True)
    await broker.delete_topic("q")
    await make_queue(broker, jobs=1)
    assert numbers(broker)["dead_lettered"] == 0
    new = await broker.claim("q", node="w")
    assert (new.seqs, new.deliveries(1)) == ([1], 1)
    assert new.lease_id != old.lease_id
    assert (await broker.ack("q", node="w", lease_id=old.lease_id)).count == 0


async def test_a_delete_takes_the_routers_at_either_end_along(broker: Broker) -> None:
    await broker.put_router("in", source="a", dest="t")
    await broker.put_router("out", source="t", dest="b")
    await broker.put_router("beside", source="a", dest="b")
    await broker.put_topic("t")
    assert await broker.delete_topic("t") == (True, ["in", "out"])
    assert [router.name for router in broker.routers().items] == ["beside"]


async def test_if_empty_spares_a_topic_with_records(broker: Broker) -> None:
    await broker.produce("t", [b"1"])
    with pytest.raises(Conflict) as error:
        broker.delete_topic("t", if_empty=True)
    assert error.value.code == "topic_not_empty"
    await broker.delete_records("t", before_seq=2)
    assert await broker.delete_topic("t", if_empty=True) == (True, [])


async def test_those_who_wait_on_a_topic_hear_that_it_was_deleted(broker: Broker) -> None:
    await make_queue(broker)
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    reading = await start(broker.diff("q", wait_ms=1000))
    await broker.delete_topic("q")
    await turn()
    for waiting in (claiming, reading):
        with pytest.raises(NotFound):
            waiting.result()


def test_the_engine_can_be_used_without_an_event_loop(clock: ManualClock) -> None:
    """The synchronous engine is what the crash tests drive; the broker adds only waiting."""
    from tenure.broker.engine import Engine
    from tenure.log.memory import MemoryLog

    engine = Engine(MemoryLog(), clock=clock, settings=Settings())
    engine.recover()
    answer = put_topic(engine, "t", {})
    assert answer.reply[1]
