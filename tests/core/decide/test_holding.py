"""Leases whose claimant has not got them, or is gone."""

from __future__ import annotations

from tenure.core.decide.holding import give_back, keep_held, release, shift_deadline
from tenure.core.events import Extended, Released
from tenure.core.level import Level
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, numbers


def test_what_a_lost_connection_held_is_given_back_in_one_batch(rules: Rules) -> None:
    make_queue(rules, jobs=5)
    first, second = (rules.claim("q", node="w", max_count=2) for _ in range(2))
    rules.ack("q", node="w", seqs=[3])
    topic = rules.state.topics["q"]
    events, _, level = release(rules.state, topic, [first.lease, second.lease, second.lease], rules.now_ms)
    assert isinstance(events, list)
    assert [(event.runs, event.cause) for event in events if isinstance(event, Released)] == [
        ([1, 2], "disconnect"),
        ([4, 1], "disconnect"),
    ]
    assert level == Level.NOW, "no caller waits for it"
    rules._fold(events)
    assert numbers(rules)["ready"] == 4


def test_leases_that_are_over_are_not_given_back_twice(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    grant = rules.claim("q", node="w", lease_ms=1000)
    clock.advance(1001)
    topic = rules.state.topics["q"]
    assert rules.state.advance(topic, rules.now_ms)
    assert release(rules.state, topic, [grant.lease], rules.now_ms)[0] is None
    rules.delete_topic("q")
    assert release(rules.state, topic, [grant.lease], rules.now_ms)[0] is None, "nor those of a topic that is gone"


def test_a_claim_that_nobody_got_is_given_back_unless_it_can_be_asked_for_again(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    plain, named = rules.claim("q", node="w"), rules.claim("q", node="w", claim_id="c")
    assert give_back(rules.state, plain, rules.now_ms)[0] is not None
    assert give_back(rules.state, named, rules.now_ms)[0] is None


def test_a_claim_that_waited_shows_what_is_still_held_of_it(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=3)
    grant = rules.claim("q", node="w", max_count=3, lease_ms=1000)
    assert keep_held(rules.state, grant, rules.now_ms) is grant
    rules.delete_records("q", seqs=[2])
    assert keep_held(rules.state, grant, rules.now_ms).seqs == [1, 3]
    clock.advance(1001)
    empty = keep_held(rules.state, grant, rules.now_ms)
    assert (empty.seqs, empty.lease, empty.lease_id) == ([], 0, None)


def test_a_lease_that_waits_for_its_sync_is_moved_with_all_that_it_holds(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=3)
    grant = rules.claim("q", node="w", max_count=3, lease_ms=1000)
    clock.advance(900)
    event, deadline_ms, level = shift_deadline(rules.state, grant, rules.now_ms, lease_ms=1000)
    assert isinstance(event, Extended)
    assert (event.runs, event.cause, deadline_ms, level) == ([1, 3], "sync", rules.now_ms + 1000, Level.SYNCED)
    rules._fold([event])
    clock.advance(900)
    assert numbers(rules)["in_flight"] == 3
    clock.advance(101)
    assert rules.state.advance(rules.state.topics["q"], rules.now_ms)
    assert shift_deadline(rules.state, grant, rules.now_ms, lease_ms=1000) == (None, 0, Level.NOW)
