"""Whose turn it is: among those who wait on one queue, and among the topics of one turn of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tenure import Broker, Record
from tenure.broker.serving.coordinator import Coordinator
from tenure.broker.serving.waiting_line import Line
from tenure.contract.commands import Claim
from tenure.core.ready_jobs import LETTERS_MAX
from tenure.core.state.topic import Topic
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, numbers, start, turn


class Taker:
    """Somebody who wants a number of jobs."""

    claim = Claim(topic="q", node="w")

    def __init__(self, name: str, want: int = 1) -> None:
        self.name = name
        self.want = want
        self.looks = 0

    def wants(self) -> int:
        self.looks += 1
        return self.want

    def hand(self, answer: object) -> None:
        pass

    def announce(self, suspects: int) -> None:
        pass

    def refuse(self, error: Exception) -> None:
        pass


def serve(line: Line, ready: int) -> dict[str, int]:
    """One pass over a line."""
    given: dict[str, int] = {}
    for taker, share in line.shares(ready):
        assert isinstance(taker, Taker)
        given[taker.name] = share
        line.move_to_end(taker)
    return given


def line_of(*takers: Taker) -> Line:
    line = Line()
    for taker in takers:
        line.add(taker)
    return line


def test_jobs_that_come_one_by_one_go_round() -> None:
    line = line_of(*map(Taker, "abc"))
    assert [serve(line, 1) for _ in range(4)] == [{"a": 1}, {"b": 1}, {"c": 1}, {"a": 1}]


def test_what_is_left_over_goes_round() -> None:
    line = line_of(*(Taker(name, 5) for name in "abc"))
    totals: Counter[str] = Counter()
    for _ in range(3):
        given = serve(line, 4)
        assert sorted(given.values()) == [1, 1, 2]
        totals.update(given)
    assert totals == {"a": 4, "b": 4, "c": 4}


def test_takers_who_want_one_job_too_many_get_no_more_than_there_are() -> None:
    assert sum(serve(line_of(Taker("a", 2), Taker("b", 3)), 4).values()) == 4
    assert serve(line_of(Taker("a", 2), Taker("b", 3)), 5) == {"a": 2, "b": 3}


def test_those_who_come_and_go_do_not_push_back_one_who_waits() -> None:
    waits = Taker("waits")
    line = line_of(Taker("first"), waits)
    served: list[str] = []
    for number in range(4):
        ((taker, _),) = line.shares(1)
        line.remove(taker)
        assert isinstance(taker, Taker)
        served.append(taker.name)
        line.add(Taker(f"again {number}"))
    assert served == ["first", "waits", "again 0", "again 1"]


def test_those_who_are_full_are_not_looked_at_until_they_are_woken() -> None:
    full, hungry = [Taker(str(number), 0) for number in range(100)], Taker("hungry")
    line = line_of(*full, hungry)
    assert serve(line, 200) == {"hungry": 1}
    for _ in range(10):
        assert serve(line, 200) == {"hungry": 1}
    assert {taker.looks for taker in full} == {1}
    full[3].want = 2
    assert line.wake(full[3])
    assert not line.wake(full[3]), "it stands in line already"
    assert serve(line, 200) == {"hungry": 1, "3": 2}
    assert len(line) == 101
    assert line.remove(full[7])
    assert not line.remove(full[7])
    assert len(line) == 100


async def _stream(broker: Broker, queue: str, node: str, got: Counter[tuple[str, str]]) -> None:
    async for claim in broker.work(queue, node=node, max_count=10):
        got[queue, node] += len(claim.jobs)
        await broker.ack(queue, node=node, seqs=claim.seqs)


async def _poll(broker: Broker, queue: str, node: str, got: Counter[tuple[str, str]]) -> None:
    while True:
        claim = await broker.claim(queue, node=node, wait_ms=30_000)
        got[queue, node] += len(claim.jobs)
        await broker.ack(queue, node=node, seqs=claim.seqs)


@pytest.mark.parametrize("work", [_stream, _poll])
async def test_two_who_wait_on_each_of_two_queues_get_half_of_it(
    broker: Broker, work: type[asyncio.Task[None]]
) -> None:
    got: Counter[tuple[str, str]] = Counter()
    for queue in ("a", "b"):
        await make_queue(broker, queue)
    tasks = [asyncio.ensure_future(work(broker, queue, node, got)) for queue in ("a", "b") for node in ("v", "w")]  # type: ignore[arg-type, call-arg]
    await turn()
    for _ in range(100):
        for queue in ("a", "b"):
            await broker.produce(queue, [b"x"])
            await turn()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(45 <= got[queue, node] <= 55 for queue in ("a", "b") for node in ("v", "w")), got


@pytest.mark.parametrize("wakes", ["a claim", "an alarm", "many streams"])
async def test_a_turn_dead_letters_no_more_than_one_pass_may(broker: Broker, clock: ManualClock, wakes: str) -> None:
    jobs = 3 * LETTERS_MAX
    await make_queue(broker, jobs=jobs, lease_ms=1_000, max_deliveries=1, dead_letter="dead")
    for _ in range(3):
        await broker.claim("q", node="dies", max_count=1_000)
    if wakes == "an alarm":
        waiting = [await start(broker.claim("q", node="w", wait_ms=30_000))]
        clock.advance(1_001)
    elif wakes == "a claim":
        clock.advance(1_001)
        waiting = [asyncio.ensure_future(broker.claim("q", node="w", wait_ms=30_000))]
    else:
        clock.advance(1_001)
        waiting = [asyncio.ensure_future(anext(broker.work("q", node=f"w{number}"))) for number in range(5)]
    dead, steps = numbers(broker)["dead_lettered"], 0
    assert dead <= LETTERS_MAX
    while dead < jobs:
        await asyncio.sleep(0)
        now = broker._engine.metrics.dead_lettered
        assert now - dead <= LETTERS_MAX
        dead, steps = now, steps + 1
        assert steps < 50, "it goes on by itself"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_topic_that_is_touched_again_is_attended_to_once_a_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_queue(broker)
    waiting = await start(broker.claim("q", node="w", wait_ms=30_000))
    served = 0
    serve = Coordinator.serve

    def touching(coordinator: Coordinator, topic: Topic) -> None:
        nonlocal served
        served += 1
        serve(coordinator, topic)
        if served < 10:
            broker._engine.changed_topics.add(topic)

    monkeypatch.setattr(Coordinator, "serve", touching)
    broker._engine.changed_topics.add(broker._state.topics["q"])
    broker._serving.settle()
    assert served == 1
    await turn()
    assert served == 10
    waiting.cancel()


async def test_what_was_meant_for_a_repeat_goes_to_others_who_wait(broker: Broker, clock: ManualClock) -> None:
    """Three callers ask for one claim_id: one gets jobs, two get the same ones, and the rest is for somebody else."""
    await make_queue(broker, claim_jitter_ms=100, max_in_flight=4)
    same = [await start(broker.claim("q", node="a", claim_id="c", wait_ms=1000)) for _ in range(3)]
    other = await start(broker.claim("q", node="b", wait_ms=1000))
    last = await start(broker.claim("q", node="c", wait_ms=1000))
    await broker.produce("q", [b"1", b"2", b"3", b"4"])
    clock.advance(100)
    await turn()
    assert [claim.result().seqs for claim in same] == [[1]] * 3
    assert (other.done(), last.done()) == (True, True)


async def test_a_queue_whose_last_waiter_left_with_dead_letters_serves_the_next(
    broker: Broker, clock: ManualClock
) -> None:
    await make_queue(broker, jobs=1, lease_ms=1000, max_deliveries=1, dead_letter="dead", claim_jitter_ms=10)
    dies = await start(broker.claim("q", node="dies"))
    clock.advance(10)
    await turn()
    assert dies.result().seqs == [1]
    first = await start(broker.claim("q", node="w", wait_ms=30_000))
    await broker.produce("q", [Record(data=b"2", delay_ms=1001)])
    clock.advance(1001)  # one job is poison, the other due: the pass buries one, hands out the other, and rests
    await turn()
    assert (first.result().seqs, numbers(broker)["dead_lettered"]) == ([2], 1)
    await broker.produce("q", [b"3"])
    second = await start(broker.claim("q", node="w", wait_ms=20_000))
    clock.advance(10)
    await turn()
    assert second.result().seqs == [3]
