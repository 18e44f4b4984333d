"""What all decisions have in common: they look and change nothing, and they say what the log must hold first."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tenure import Overloaded, Record
from tenure.contract import commands as c
from tenure.contract.records import lease_id
from tenure.core.decide.decision import Steps
from tenure.core.decide.table import DECIDES
from tenure.core.events import Acked, Appended, Claimed, DeadLettered, Event, Evicted, Redriven, Released
from tenure.core.level import Level
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, numbers, snapshot

COMMANDS: list[c.Command[Any]] = [
    c.Append(topic="q", records=[b"1"]),
    c.Append(topic="q", records=[Record(data=b"1", tag="t", delay_ms=5, unique_key="u")], idempotency_key="k"),
    c.Append(topic="new", records=[b"1", b"2"], client_id="c", client_seq=1),
    c.Append(topic="capped", records=[b"1", b"2"]),
    c.Diff(topic="q"),
    c.DeleteRecords(topic="q", before_seq=3),
    c.Claim(topic="q", node="w", max_count=9),
    c.Claim(topic="q", node="w", max_count=9, auto_ack=True),
    c.Claim(topic="poisoned", node="w", max_count=9),
    c.Ack(topic="q", node="w", seqs=[1, 2]),
    c.Nack(topic="q", node="w", seqs=[1, 2]),
    c.Nack(topic="q", node="w", seqs=[1, 2], dead=True),
    c.Extend(topic="q", node="w", seqs=[1], lease_ms=60_000),
    c.Claim(topic="q", node="w", max_count=9, isolate=True, group="g"),
    c.Claim(topic="lost", node="w", max_count=9, isolate=True, suspects=True),
    c.Claim(topic="lost", node="w", max_count=9),
    c.Return(topic="q", node="w", seqs=[1, 2]),
    c.Begin(topic="lost", node="v", seq=2, lease_id=lease_id((1 << 40) + 5)),
    c.EndNode(topic="lost", node="v", seqs=[2]),
    c.Redrive(topic="parking"),
    c.Redrive(topic="dead"),
    c.PutTopic(topic="q", config={"type": "queue", "cap_records": 1}),
    c.PutTopic(topic="new", config={}),
    c.PatchTopic(topic="q", config={"ttl_ms": 1}),
    c.DeleteTopic(topic="q"),
    c.PutRouter(router="r", source="q", dest="copy"),
    c.DeleteRouter(router="known"),
    c.GetTopic(topic="q"),
    c.ListTopics(),
    c.GetRouter(router="known"),
    c.ListRouters(),
    c.ListJobs(topic="q"),
    c.GetJob(topic="q", seq=1),
    c.ListLeases(topic="q"),
    c.Strip(topic="q"),
]


@pytest.fixture
def world(rules: Rules, clock: ManualClock) -> Rules:
    """Queues with jobs in every state: ready, held, dead-lettered, parked, about to be."""
    make_queue(rules, jobs=5, dead_letter="dead")
    rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", seqs=[3], dead=True)
    make_queue(rules, "parking", jobs=2, dlq_strategy="block", max_deliveries=1)
    rules.claim("parking", node="w")
    rules.nack("parking", node="w", seqs=[1], dead=True)
    make_queue(rules, "poisoned", jobs=3, dead_letter="dead", max_deliveries=1)
    rules.claim("poisoned", node="w", max_count=2)
    rules.nack("poisoned", node="w", seqs=[1, 2])
    make_queue(rules, "lost", jobs=3)
    rules.lose("lost", rules.claim("lost", node="w", isolate=True).lease)
    assert rules.claim("lost", node="v", isolate=True).lease_id == lease_id((1 << 40) + 5)
    rules.put_topic("capped", {"cap_records": 2})
    rules.produce("capped", [b"1", b"2"])
    rules.put_router("known", source="capped", dest="copy")
    return rules


def decide(rules: Rules, command: c.Command[Any]) -> Any:
    return DECIDES[type(command)](rules.state, command, rules.now_ms, rules.payloads)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_decision_changes_nothing_until_its_events_are_folded(world: Rules, command: c.Command[Any]) -> None:
    before = snapshot(world)
    decided = decide(world, command)
    if not isinstance(decided, tuple):
        next(decided, None)
    assert snapshot(world) == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_decision_is_the_same_whenever_it_is_made_at_one_time(world: Rules, command: c.Command[Any]) -> None:
    first, again = decide(world, command), decide(world, command)
    if not isinstance(first, tuple):
        first, again = next(first, None), next(again, None)
        assert first == again
    else:
        assert first[0] == again[0]


def test_every_command_is_among_those_that_are_tried() -> None:
    assert {type(command) for command in COMMANDS} == set(DECIDES)


def kinds(events: list[Event] | Event) -> list[type[Event]]:
    return [type(event) for event in (events if isinstance(events, list) else [events])]


def test_an_ack_is_one_event_that_waits_as_the_class_of_the_queue_asks(world: Rules) -> None:
    event, reply, level = decide(world, c.Ack(topic="q", node="w", seqs=[1, 2]))
    assert (event.runs, reply.count, level) == ([1, 2], 2, Level.WRITTEN)
    world.patch_topic("q", {"durability": "fsync"})
    assert decide(world, c.Ack(topic="q", node="w", seqs=[1]))[2] == Level.SYNCED
    assert decide(world, c.Ack(topic="q", node="other", seqs=[1]))[0::2] == (None, Level.NOW), "nothing to wait for"


def test_a_claim_that_acks_by_itself_is_one_batch(world: Rules) -> None:
    events, reply, _ = decide(world, c.Claim(topic="q", node="w", auto_ack=True))
    assert (kinds(events), reply.lease) == ([Claimed, Acked], 0)


def test_a_dead_letter_and_its_removal_are_one_batch(world: Rules) -> None:
    steps = decide(world, c.Nack(topic="q", node="w", seqs=[1], dead=True))
    assert kinds(next(steps)) == [Appended, DeadLettered]


def test_a_claim_takes_what_is_left_after_it_has_buried_the_poisoned(world: Rules) -> None:
    steps = decide(world, c.Claim(topic="poisoned", node="w", max_count=9))
    buried = next(steps)
    assert kinds(buried) == [Appended, DeadLettered]
    world._fold(buried)
    (claimed,) = next(steps)
    assert (type(claimed), claimed.runs) == (Claimed, [3, 1])


def test_an_append_over_a_cap_stands_though_its_eviction_cannot_be_logged(world: Rules) -> None:
    steps = decide(world, c.Append(topic="capped", records=[b"3"]))
    world._fold(next(steps))
    (evicted,) = next(steps)
    assert type(evicted) is Evicted
    with pytest.raises(StopIteration) as done:
        steps.throw(Overloaded("the disk is full"))
    assert done.value.value[0].first_seq == 3


def next_batch(world: Rules, steps: Steps[Any]) -> list[Event]:
    """Go on to the next batch that is not a pause."""
    is_new = inspect.getgeneratorstate(steps) == inspect.GEN_CREATED
    events = next(steps) if is_new else steps.send(world.now_ms)
    while not events:
        events = steps.send(world.now_ms)
    assert isinstance(events, list)
    return events


def test_a_redrive_that_the_log_refuses_says_what_it_moved_before(world: Rules) -> None:
    world.nack("q", node="w", seqs=[1], dead=True)
    steps = decide(world, c.Redrive(topic="dead"))
    world._fold(moved := next_batch(world, steps))
    assert kinds(moved) == [Appended, Redriven]
    next_batch(world, steps)
    with pytest.raises(StopIteration) as done:
        steps.throw(Overloaded("the disk is full"))
    assert done.value.value[0].redriven == 1


def test_a_redrive_that_the_log_refuses_at_once_is_refused(world: Rules) -> None:
    steps = decide(world, c.Redrive(topic="dead"))
    next_batch(world, steps)
    with pytest.raises(Overloaded):
        steps.throw(Overloaded("the disk is full"))


def test_a_nack_is_answered_as_the_queue_stands_then(world: Rules) -> None:
    """Counts in a reply are computed before the fold: they must be what a look after it finds."""
    for delay_ms, ready in ((None, 3), (60_000, 2)):
        event, reply, _ = decide(world, c.Nack(topic="q", node="w", seqs=[1], delay_ms=delay_ms))
        assert isinstance(event, Released)
        world._fold([event])
        counts = numbers(world)
        assert (reply.ready, reply.in_flight) == (counts["ready"], counts["in_flight"])
        assert reply.ready == ready
        if delay_ms is None:
            world.claim("q", node="w")
