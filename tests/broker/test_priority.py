"""Who is served first under pressure: topics of one turn of the loop, and writers where room is short."""

from __future__ import annotations

import asyncio

import pytest

from tenure import Broker, Overloaded, Settings
from tenure.broker.serving.topic_turns import TopicTurns
from tenure.contract.config import TopicConfig
from tenure.core.state.topic import Topic
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, make_queue, start, turn
from tests.kit.counted_steps import count_steps

PLACES = 4


async def served(
    clock: ManualClock, priorities: dict[str, int | None], *, claimed: str = "", places: int = PLACES
) -> list[str]:
    """The queues in the order in which a sync that makes a job of each of them visible has them served."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=Settings(turn_topics_max=places)) as broker:
        for name, priority in priorities.items():
            await make_queue(broker, name, durability="fsync", priority=priority)
        if claimed:
            await broker.produce(claimed, [b"0"])
            await broker.claim(claimed, node="w", auto_ack=True)
        waiting = [await start(broker.claim(name, node="w", wait_ms=30_000)) for name in priorities]
        events = broker.events()
        log.gate.clear()
        produced = [broker.produce(name, [b"1"]) for name in priorities]
        await turn()
        log.gate.set()
        for answer in produced:
            await answer
        await asyncio.wait(waiting)
        return [row.topic for row in events.drain() if row.event == "claimed"]


async def test_queues_of_higher_priority_are_served_first_where_a_turn_does_not_take_all(clock: ManualClock) -> None:
    priorities: dict[str, int | None] = {f"q{n:02}": n for n in range(12)}
    order = await served(clock, priorities)
    by_priority = [name for place, name in enumerate(order) if place % PLACES != PLACES - 1]
    assert by_priority == sorted(by_priority, reverse=True)
    assert order[:3] == ["q11", "q10", "q09"]


async def test_the_lowest_priority_is_served_too_and_not_at_the_end(clock: ManualClock) -> None:
    priorities: dict[str, int | None] = {f"q{n:02}": n for n in range(12)}
    order = await served(clock, priorities)
    assert sorted(order) == sorted(priorities)
    assert order.index("q00") == PLACES - 1, "the fourth place of a turn goes to who has waited longest"


async def test_a_queue_that_is_worked_on_comes_before_one_that_is_not(clock: ManualClock) -> None:
    order = await served(clock, {f"q{n}": None for n in range(8)}, claimed="q7")
    assert order[0] == "q7"


async def test_without_a_limit_one_turn_serves_all(clock: ManualClock) -> None:
    priorities: dict[str, int | None] = {f"q{n}": n for n in range(8)}
    assert sorted(await served(clock, priorities, places=0)) == sorted(priorities)


def topics(count: int, *, priority: int = 0) -> list[Topic]:
    return [Topic(number, f"t{number}", TopicConfig(priority=priority)) for number in range(1, count + 1)]


def test_a_topic_waits_a_bounded_number_of_turns_whatever_else_comes() -> None:
    turns, rivals, [low] = TopicTurns(), topics(30, priority=1_000), topics(1, priority=-1_000)
    turns.add([*rivals, low], wall_ms=0)
    for _ in range(len(rivals) + 1):
        if low in turns.take(PLACES):
            return
        turns.add(rivals, wall_ms=0)  # those that were served come back at once
    raise AssertionError("it was not served, though one place of each turn goes by age")


def test_topics_of_one_priority_are_served_in_the_order_in_which_they_came() -> None:
    turns, waiting = TopicTurns(), topics(10)
    turns.add(waiting, wall_ms=0)
    turns.add(reversed(waiting), wall_ms=0)
    assert turns.take(100) == waiting
    assert (len(turns), turns.take(1)) == (0, [])


def test_places_of_topics_that_left_are_forgotten() -> None:
    turns = TopicTurns()
    low, high = topics(50, priority=-5), topics(50, priority=5)
    for _ in range(500):
        turns.add([*low, *high], wall_ms=0)
        turns.take(PLACES)
    assert len(turns._by_priority) + len(turns._by_age) <= 2 * (2 * 100 + 1_000 + 100)


def test_a_place_costs_about_the_same_however_many_wait() -> None:
    def cost(count: int) -> float:
        turns, waiting = TopicTurns(), topics(count)
        steps = count_steps(lambda: turns.add(waiting, wall_ms=0))
        return (steps + count_steps(lambda: turns.take(count))) / count

    assert cost(4_000) < 2 * cost(100)


# Room


async def test_a_full_broker_turns_away_low_priorities_first(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(total_bytes_max=1_000)) as broker:
        for name, priority in (("low", -1_000), ("lower", -200), ("plain", None), ("high", 1_000)):
            await broker.put_topic(name, {"priority": priority})
        await broker.produce("plain", [b"x" * 450])
        await broker.produce("low", [b"x" * 50])
        with pytest.raises(Overloaded) as error:
            broker.produce("low", [b"x"])
        assert error.value.detail == {"limit": "total_bytes_max", "max": 1_000}
        await broker.produce("lower", [b"x" * 400])
        with pytest.raises(Overloaded):
            broker.produce("lower", [b"x"])
        await broker.produce("plain", [b"x" * 50])
        await broker.produce("high", [b"x" * 50])
        for name in ("plain", "high"):
            with pytest.raises(Overloaded):
                broker.produce(name, [b"x"])


async def test_a_disk_that_is_behind_turns_away_low_priorities_first(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=Settings(pending_bytes_max=1_000)) as broker:
        await broker.put_topic("low", {"priority": -1_000})
        await broker.put_topic("plain")
        log.gate.clear()
        try:
            await broker.produce("plain", [b"x" * 600])
            await turn()
            with pytest.raises(Overloaded, match="behind"):
                broker.produce("low", [b"x"])
            await broker.produce("plain", [b"x"])
        finally:
            log.gate.set()
