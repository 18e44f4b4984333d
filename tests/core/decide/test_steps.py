"""Decisions on a million jobs, made small: a step looks at three, and other commands run between two steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tenure import NotFound, Record
from tenure.contract import commands as c
from tenure.core.decide import jobs as jobs_module
from tenure.core.decide import redrive as redrive_module
from tenure.core.decide.catch_up import catch_up
from tenure.core.decide.holding import keep_held
from tenure.core.decide.table import DECIDES
from tenure.core.events import Deleted, Event
from tenure.core.state.ranges import count
from tenure.testing.clock import ManualClock
from tests.kit.rules import NotYet, Rules, make_queue, numbers, snapshot

STEP = 3


@pytest.fixture
def stepped(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Rules whose steps are three jobs long."""
    rules.state.step_jobs_max = STEP
    monkeypatch.setattr(redrive_module, "_WINDOW", STEP)
    return rules


def step(rules: Rules, topic: str = "q") -> bool:
    """Take one step of a topic that is behind; return whether it was the last."""
    behind = rules.state.topics[topic]
    decided = catch_up(rules.state, behind, rules.now_ms, rules.payloads)
    done: bool = rules.state.step_time(behind, rules.now_ms) and rules._carry_out(decided)
    if done:
        rules.state.behind.pop(rules.state.topics[topic], None)
    return done


def finish(rules: Rules, steps: Any) -> tuple[list[Event], Any]:
    """Take the other steps of a command; return what they logged, and the reply."""
    logged: list[Event] = []
    while True:
        try:
            events = steps.send(rules.now_ms)
        except StopIteration as done:
            return logged, done.value[0]
        rules._fold(events)
        logged += events


def start(rules: Rules, command: c.Command[Any]) -> Any:
    steps = DECIDES[type(command)](rules.state, command, rules.now_ms, rules.payloads)
    rules._fold(next(steps))  # type: ignore[arg-type]
    return steps


# Time


def held_singly(rules: Rules, clock: ManualClock, jobs: int, **config: Any) -> None:
    """A queue whose jobs are each held under a lease, one more millisecond for each, all of them over."""
    make_queue(rules, jobs=jobs, lease_ms=1_000, **config)
    for _ in range(jobs):
        rules.claim("q", node="w")
        clock.advance(1)
    clock.advance(2_000)


def test_a_step_ends_no_more_leases_than_it_may(stepped: Rules, clock: ManualClock) -> None:
    held_singly(stepped, clock, 12)
    ended, queue = [], stepped.state.topics["q"].queue
    assert queue is not None
    while queue.in_flight:
        before = len(queue.in_flight)
        stepped.state.advance(stepped.state.topics["q"], stepped.now_ms)
        ended.append(before - len(queue.in_flight))
    assert max(ended) <= STEP
    assert sum(ended) == 12


def test_leases_of_one_deadline_end_in_steps_too(stepped: Rules, clock: ManualClock) -> None:
    make_queue(stepped, jobs=12, lease_ms=1_000)
    for _ in range(12):
        stepped.claim("q", node="w")
    clock.advance(2_000)
    ended = []
    queue = stepped.state.topics["q"].queue
    assert queue is not None
    while queue.in_flight:
        before = len(queue.in_flight)
        stepped.state.advance(stepped.state.topics["q"], stepped.now_ms)
        ended.append(before - len(queue.in_flight))
    assert max(ended) <= STEP


@pytest.mark.parametrize("backoff", [None, {"min_ms": 1_000}])
def test_steps_end_the_same_leases_in_the_same_order_as_one_pass(backoff: dict[str, int] | None) -> None:
    def life(step_jobs_max: int) -> bytes:
        clock = ManualClock()
        rules = Rules(clock)
        make_queue(rules, jobs=30, lease_ms=1_000, retry_backoff=backoff)
        for number in range(10):
            seqs = rules.claim("q", node=f"w{number % 3}", max_count=3).seqs
            rules.extend("q", node=f"w{number % 3}", seqs=seqs[:1], lease_ms=500 + 100 * number)
            clock.advance(number % 2)
        rules.produce("q", [Record(data=b"x", delay_ms=700), Record(data=b"y", deliver_at=rules.now_ms + 900)])
        clock.advance(5_000)
        topic = rules.state.topics["q"]
        if step_jobs_max:
            rules.state.step_jobs_max = step_jobs_max
            while not rules.state.advance(topic, rules.now_ms):
                rules.produce("q", [b"an append does not wait"]) if topic.head_seq < 40 else None
        while topic.head_seq < 40:
            rules.produce("q", [b"an append does not wait"])
        rules.state.step_jobs_max = 0
        rules.claim("q", node="w", max_count=7)
        return snapshot(rules)

    assert life(1) == life(2) == life(5) == life(0)


def test_delays_that_end_together_end_in_steps(stepped: Rules, clock: ManualClock) -> None:
    make_queue(stepped)
    stepped.produce("q", [Record(data=b"x", delay_ms=100)] * 10)
    clock.advance(200)
    with pytest.raises(NotYet):
        stepped.claim("q", node="w")
    assert numbers(stepped)["delayed"] == 10 - 2 * STEP, "the claim has taken one step, and the look another"
    while not step(stepped):
        pass
    assert stepped.claim("q", node="w", max_count=10).seqs == list(range(1, 11))


@pytest.mark.parametrize(
    "command",
    [
        c.Claim(topic="q", node="w"),
        c.Ack(topic="q", node="w", seqs=[1]),
        c.Nack(topic="q", node="w", seqs=[1, 2]),
        c.Extend(topic="q", node="w", seqs=[1], lease_ms=1_000),
        c.PutTopic(topic="q", config={"type": "queue", "retry_backoff": {"min_ms": 5}}),
        c.PatchTopic(topic="q", config={"lease_ms": 5_000}),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_that_needs_the_present_of_a_queue_waits_until_it_has_caught_up(
    stepped: Rules, clock: ManualClock, command: c.Command[Any]
) -> None:
    held_singly(stepped, clock, 12)
    with pytest.raises(NotYet):
        stepped.run(command)
    assert list(stepped.state.behind) == [stepped.state.topics["q"]]
    while not step(stepped):
        pass
    stepped.run(command)


def test_looks_and_appends_do_not_wait_for_a_queue_that_is_behind(stepped: Rules, clock: ManualClock) -> None:
    held_singly(stepped, clock, 12)
    counts = numbers(stepped)
    assert 0 < counts["in_flight"] < 12
    assert counts["in_flight"] + counts["ready"] == 12
    assert stepped.produce("q", [b"13"]).first_seq == 13
    assert len(stepped.jobs("q", state="in_flight").items) < counts["in_flight"], "each look takes a step"


def test_a_job_whose_deadline_passed_is_not_handed_over_though_its_queue_is_behind(
    stepped: Rules, clock: ManualClock
) -> None:
    make_queue(stepped, jobs=12, lease_ms=1_000)
    grants = []
    for _ in range(12):
        grants.append(stepped.claim("q", node="w"))
        clock.advance(1)
    clock.advance(2_000)
    assert not stepped.state.advance(stepped.state.topics["q"], stepped.now_ms)
    assert keep_held(stepped.state, grants[-1], stepped.now_ms).jobs == []
    assert stepped.state.topics["q"] in stepped.state.behind


# TTL and caps


def test_a_claim_waits_until_all_that_is_over_its_ttl_is_evicted(stepped: Rules, clock: ManualClock) -> None:
    make_queue(stepped, jobs=10, ttl_ms=1_000)
    clock.advance(2_000)
    stepped.produce("q", [b"new"])
    with pytest.raises(NotYet):
        stepped.claim("q", node="w")
    assert stepped.state.topics["q"].count > 1
    while not step(stepped):
        pass
    assert stepped.claim("q", node="w", max_count=9).seqs == [11]


def test_a_read_leaves_out_what_is_over_its_ttl_and_not_yet_evicted(stepped: Rules, clock: ManualClock) -> None:
    stepped.put_topic("log", {"ttl_ms": 1_000})
    for _ in range(10):
        stepped.produce("log", [b"old"])
    clock.advance(2_000)
    stepped.produce("log", [b"new"])
    found = stepped.diff("log", from_seq=4)
    assert stepped.state.topics["log"].count > 1, "some are still there"
    assert ([r.seq for r in found.records], found.caught_up) == ([11], True)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.tombstone.reason) == (5, 10, "ttl")


def test_a_cap_that_is_lowered_evicts_step_by_step(stepped: Rules) -> None:
    for _ in range(20):
        stepped.produce("log", [b"x"])
    counts = [stepped.put_topic("log", {"cap_records": 4})[0].count]
    while not step(stepped, "log"):
        counts.append(stepped.topic("log").count)
    assert stepped.topic("log").count == 4
    assert all(before - after <= STEP for before, after in pairwise(counts))
    assert len(counts) > 3


def test_an_eviction_looks_at_held_jobs_once(stepped: Rules) -> None:
    make_queue(stepped, cap_records=10, discard="old", lease_ms=86_400_000)
    for _ in range(10):
        stepped.produce("q", [b"x"])
        stepped.claim("q", node="w")
    for _ in range(4):
        stepped.produce("q", [b"x"])
    while not step(stepped):
        pass
    assert stepped.state.topics["q"].evict_from == stepped.state.topics["q"].head_seq
    assert stepped.topic("q").count == 11, "the newest stays, and no held one goes"
    stepped.nack("q", node="w", seqs=[1])
    assert stepped.state.topics["q"].evict_from == 1


# Deletes


@pytest.mark.parametrize("choice", [{"before_seq": 9}, {"match": "t"}, {"seqs": list(range(1, 9))}])
def test_a_delete_removes_so_many_in_a_step_and_nothing_that_came_later(stepped: Rules, choice: dict[str, Any]) -> None:
    stepped.produce("log", [Record(data=b"x", tag="t")] * 8)
    steps = start(stepped, c.DeleteRecords(topic="log", **choice))
    stepped.produce("log", [Record(data=b"later", tag="t")])
    logged, reply = finish(stepped, steps)
    assert all(isinstance(event, Deleted) and count(event.runs) <= STEP for event in logged)
    assert len(logged) >= 2
    assert (reply.deleted, stepped.topic("log").count) == (8, 1)


def test_a_delete_ends_where_its_topic_goes_between_two_steps(stepped: Rules) -> None:
    stepped.produce("log", [b"x"] * 8)
    steps = start(stepped, c.DeleteRecords(topic="log", before_seq=9))
    stepped.delete_topic("log")
    stepped.produce("log", [b"another"])
    _, reply = finish(stepped, steps)
    assert (reply.deleted, stepped.topic("log").count) == (STEP, 1)


def test_what_went_between_two_steps_of_a_delete_is_not_counted(stepped: Rules) -> None:
    stepped.produce("log", [b"x"] * 8)
    steps = start(stepped, c.DeleteRecords(topic="log", before_seq=9))
    stepped.state.step_jobs_max = 100
    stepped.delete_records("log", seqs=[4, 5, 8])
    _, reply = finish(stepped, steps)
    assert reply.deleted == 5


# Redrives


def dead_letters(rules: Rules, jobs: int) -> None:
    make_queue(rules, jobs=jobs, dead_letter="dead")
    rules.state.step_jobs_max = 100
    seqs = rules.claim("q", node="w", max_count=jobs).seqs
    rules.nack("q", node="w", seqs=seqs, dead=True, reason="boom")
    rules.state.step_jobs_max = STEP


def test_a_redrive_pauses_after_each_window_though_no_letter_matches(stepped: Rules) -> None:
    dead_letters(stepped, 10)
    steps = start(stepped, c.Redrive(topic="dead", reason_like="other"))
    assert [steps.send(stepped.now_ms) for _ in range(3)] == [[], [], []], "ten letters, three in a window"
    assert finish(stepped, steps)[1].redriven == 0


def test_a_letter_that_went_between_two_steps_is_not_moved(stepped: Rules) -> None:
    dead_letters(stepped, 4)
    steps = start(stepped, c.Redrive(topic="dead"))
    stepped.delete_records("dead", seqs=[2])
    _, reply = finish(stepped, steps)
    assert reply.seqs == [1, 3, 4]
    assert numbers(stepped)["ready"] == 3


def test_parked_jobs_are_resumed_a_window_at_a_time(stepped: Rules) -> None:
    make_queue(stepped, jobs=8, dlq_strategy="block")
    stepped.state.step_jobs_max = 100
    stepped.claim("q", node="w", max_count=8)
    stepped.nack("q", node="w", seqs=list(range(1, 9)), dead=True)
    steps = start(stepped, c.Redrive(topic="q", limit=7))
    assert numbers(stepped)["parked"] == 5
    _, reply = finish(stepped, steps)
    assert reply.seqs == list(range(1, 8))


def test_a_redrive_whose_topic_went_raises_nothing(stepped: Rules) -> None:
    dead_letters(stepped, 4)
    steps = start(stepped, c.Redrive(topic="dead"))
    stepped.delete_topic("dead")
    _, reply = finish(stepped, steps)
    assert reply.redriven == 0
    with pytest.raises(NotFound):
        stepped.topic("dead")


# Reads


def test_a_filtered_read_passes_over_so_many_and_says_where_to_go_on(
    stepped: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.core.decide.reads._WINDOW", STEP)
    stepped.produce("log", [Record(data=b"own", node="me")] * 10)
    stepped.produce("log", [Record(data=b"other", node="you")])
    at, reads = 0, 0
    while True:
        found = stepped.diff("log", from_seq=at, node="me")
        assert at < found.next_from_seq <= at + 2 * STEP
        at, reads = found.next_from_seq, reads + 1
        if found.caught_up:
            break
    assert ([r.data for r in found.records], at) == ([b"other"], 11)
    assert reads >= 3


def test_a_listing_of_few_among_many_ends_with_a_cursor(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_LOOKS_MAX", 4)
    make_queue(rules, jobs=20)
    rules.claim("q", node="w", max_count=20)
    rules.nack("q", node="w", seqs=list(range(3, 15)), delay_ms=500)
    pages, cursor = [], None
    while True:
        page = rules.jobs("q", state="in_flight", limit=3, cursor=cursor)
        pages.append([row.seq for row in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [seq for page in pages for seq in page] == [1, 2, 15, 16, 17, 18, 19, 20]
    assert [] in pages, "a page may be empty and have a cursor"
