"""Topics as such: put, look, list, delete."""

from __future__ import annotations

import pytest

from tenure import Broker, NotFound, Overloaded, Settings
from tenure.testing.clock import ManualClock
from tests.broker.support import make_queue, snapshot, start, turn
from tests.kit import run

# Put


async def test_durable_is_another_word_for_fsync_and_durability_wins(broker: Broker) -> None:
    info, _ = await broker.put_topic("a", {"durable": True})
    assert (info.config["durability"], info.config["durable"]) == ("fsync", True)
    info, _ = await broker.put_topic("b", {"durable": True, "durability": "memory"})
    assert (info.config["durability"], info.config["durable"]) == ("memory", False)


# Get


async def test_an_empty_log_says_where_it_will_begin(broker: Broker) -> None:
    await broker.put_topic("t")
    info = broker.topic("t")
    assert (info.head_seq, info.durable_seq, info.earliest_seq, info.next_seq) == (0, 0, 1, 1)
    assert (info.count, info.bytes, info.last_write_ts, info.queue) == (0, 0, 0, None)


# List


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
    answer = run.put_topic(engine, "t", {})
    assert answer.reply[1]
