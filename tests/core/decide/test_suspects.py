"""Suspects: who gets them, and when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure import Invalid, Overloaded, Record, Settings
from tenure.contract.commands import Claim
from tenure.core.events import Appended, AppendExtra
from tenure.core.suspects import borrow_ms, choose_for, waiting_count
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, numbers

WAIT_MS = Settings().suspects_wait_ms
HOUR_MS = 3_600_000


@pytest.fixture
def world(rules: Rules) -> Rules:
    """A queue in which 2, 4 and 6 are suspects and 7 to 9 are fresh; 1, 3 and 5 were acked."""
    make_queue(rules, jobs=9)
    rules.ack("q", node="w", seqs=[1, 3, 5])
    for seq in range(1, 7):
        claim = rules.claim("q", node="w", isolate=True, lease_ms=HOUR_MS)
        assert claim.seqs == [seq]
        if seq % 2:
            rules.ack("q", node="w", seqs=[seq])
    rules.end_node("q", node="w", seqs=[2, 4, 6])
    assert numbers(rules)["suspects"] == 3
    return rules


def take(rules: Rules, node: str = "v", max_count: int = 9, **options: Any) -> list[int]:
    """Claim, and return what was given."""
    return rules.claim("q", node=node, max_count=max_count, lease_ms=HOUR_MS, **options).seqs


def test_a_claim_for_suspects_gets_those_and_nothing_else(world: Rules) -> None:
    assert take(world, isolate=True, suspects=True, max_count=2) == [2, 4]
    assert take(world, isolate=True, suspects=True) == [6]
    assert take(world, isolate=True, suspects=True) == []


def test_a_claim_that_isolates_gets_none_while_others_take_them(world: Rules) -> None:
    assert take(world, isolate=True) == [7, 8, 9]
    assert take(world, isolate=True) == []


def test_a_plain_claim_gets_suspects_last(world: Rules) -> None:
    assert take(world, max_count=4) == [2, 7, 8, 9]
    assert take(world) == [4, 6]


def test_a_plain_claim_gets_what_came_back_before_it_gets_suspects(world: Rules) -> None:
    world.nack("q", node="v", seqs=take(world, max_count=1, isolate=True))
    assert take(world, max_count=1) == [7]


def test_after_a_while_a_claim_that_isolates_gets_one_suspect_at_a_time(world: Rules, clock: ManualClock) -> None:
    clock.advance(WAIT_MS - 1)
    assert take(world, isolate=True, max_count=1) == [7]
    clock.advance(1)
    assert take(world, isolate=True, group="g") == [2, 8, 9], "one, beside fresh work"
    assert take(world, isolate=True, group="g") == []
    assert take(world, "u", isolate=True, group="g") == [], "it is the group that has one"
    assert take(world, isolate=True, group="h") == [4]
    assert take(world, "u", isolate=True) == [6], "a node without a group is one"


def test_a_group_gets_the_next_suspect_after_a_verdict_on_the_last(world: Rules, clock: ManualClock) -> None:
    clock.advance(WAIT_MS)
    assert take(world, isolate=True, max_count=1) == [2]
    world.ack("q", node="v", seqs=[2])
    assert take(world, isolate=True, max_count=1) == [4]
    world.nack("q", node="v", seqs=[4])
    assert take(world, isolate=True, max_count=2) == [4, 6], "4 is none any more"
    world.return_jobs("q", node="v", seqs=[6])
    assert take(world, isolate=True, max_count=1) == [7], "the line was empty, and the wait begins again"
    clock.advance(WAIT_MS)
    assert take(world, isolate=True, max_count=1) == [6]


def test_a_claim_for_suspects_lets_the_others_wait_again(world: Rules, clock: ManualClock) -> None:
    clock.advance(WAIT_MS)
    assert take(world, "s", isolate=True, suspects=True, max_count=1) == [2]
    assert take(world, isolate=True) == [7, 8, 9]
    clock.advance(WAIT_MS)
    assert take(world, isolate=True) == [4]


def test_an_opening_lets_the_others_wait_again(world: Rules, clock: ManualClock) -> None:
    """Whoever takes suspects needs a while to come back too."""
    clock.advance(WAIT_MS)
    world.open()
    assert take(world, isolate=True) == [7, 8, 9]
    assert borrow_ms(world.state, world.state.topics["q"].queue) == world.now_ms + WAIT_MS  # type: ignore[arg-type]


def test_the_wait_begins_with_the_first_suspect(world: Rules, clock: ManualClock) -> None:
    clock.advance(WAIT_MS - 1)
    world.lose("q", world.claim("q", node="x", isolate=True).lease)
    clock.advance(1)
    assert take(world, isolate=True, max_count=1) == [2]


def test_a_claim_says_how_many_suspects_wait(world: Rules) -> None:
    claim = world.claim("q", node="v", isolate=True)
    assert (claim.suspects, claim.ready) == (3, 5)
    assert world.claim("q", node="s", isolate=True, suspects=True, max_count=2).suspects == 1
    assert world.claim("q", node="p").suspects == 0, "a plain claim is not told"
    take(world)
    assert world.claim("q", node="v", isolate=True).suspects == 0


def test_a_repeated_claim_says_the_same_of_its_jobs(world: Rules) -> None:
    options: dict[str, Any] = {"node": "s", "isolate": True, "suspects": True, "max_count": 2, "claim_id": "c"}
    first, again = world.claim("q", **options), world.claim("q", **options)
    assert (first.seqs, first.tries, first.lost, first.suspects) == ([2, 4], {2: 1, 4: 1}, {2: 1, 4: 1}, 1)
    assert (again.seqs, again.tries, again.lost, again.suspects) == (first.seqs, first.tries, first.lost, 1)


def test_a_claim_for_suspects_must_isolate(rules: Rules) -> None:
    make_queue(rules)
    with pytest.raises(Invalid):
        rules.claim("q", node="w", suspects=True)


def test_a_cap_on_what_is_in_flight_is_for_suspects_too(world: Rules) -> None:
    world.patch_topic("q", {"max_in_flight": 2})
    assert take(world, isolate=True, suspects=True) == [2, 4]
    refused: list[dict[str, Any]] = [{"isolate": True, "suspects": True}, {"isolate": True}, {}]
    for options in refused:
        with pytest.raises(Overloaded):
            take(world, **options)


def test_a_cap_on_holes_is_for_fresh_jobs_and_not_for_suspects(world: Rules) -> None:
    world.produce("q", [b"fresh"] * 4)
    assert take(world, isolate=True, max_count=5) == [7, 8, 9, 10, 11]
    world.patch_topic("q", {"max_ack_holes": 1})
    world.ack("q", node="v", seqs=[8, 10])
    assert numbers(world)["ack_holes"] == 2, "7 and 9: suspects that wait are none"
    with pytest.raises(Overloaded):
        take(world, isolate=True)
    assert take(world, max_count=5) == [2, 4, 6]


def test_listings_show_suspects_among_the_ready_and_by_themselves(world: Rules) -> None:
    assert [row.seq for row in world.jobs("q", state="suspect").items] == [2, 4, 6]
    rows = world.jobs("q", state="ready").items
    assert [row.seq for row in rows] == [2, 4, 6, 7, 8, 9]
    assert [(row.tries, row.lost) for row in rows[2:4]] == [(0, 1), (None, 0)]
    page = world.jobs("q", state="suspect", limit=2)
    assert [row.seq for row in world.jobs("q", state="suspect", limit=2, cursor=page.next_cursor).items] == [6]


def test_a_suspect_that_is_not_durable_yet_is_not_handed_out_yet(rules: Rules) -> None:
    """One that a redrive just appended is seen once its append is durable."""
    make_queue(rules, jobs=1, durability="fsync")
    topic = rules.state.topics["q"]
    assert topic.queue is not None
    extra = AppendExtra(losses=[2, 1])
    rules._fold([Appended(rules.now_ms, topic.id, rules.now_ms, 2, 1, b"", b"late", True, extra)])
    topic.durable_seq = 1
    command = Claim(topic="q", node="s", isolate=True, suspects=True)
    for durable_seq, runs in ((1, []), (2, [2, 1])):
        topic.durable_seq = durable_seq
        assert choose_for(rules.state, topic, topic.queue, command, 9, now_ms=rules.now_ms).runs == runs
        assert waiting_count(topic, topic.queue) == len(runs) // 2


def test_a_delayed_suspect_waits_for_its_time(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.lose("q", rules.claim("q", node="w", isolate=True).lease)
    claim = rules.claim("q", node="s", isolate=True, suspects=True)
    rules.return_jobs("q", node="s", lease_id=claim.lease_id, delay_ms=100)
    assert numbers(rules)["suspects"] == 0
    clock.advance(100)
    assert numbers(rules)["suspects"] == 1


def test_many_groups_that_took_one_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.core.fold.leases._BORROWERS_MAX", 3)
    rules = Rules(settings=replace(Settings(), suspects_wait_ms=0))
    make_queue(rules, jobs=20)
    rules.lose("q", rules.claim("q", node="w", isolate=True, max_count=20).lease)
    for number in range(12):
        seqs = take(rules, f"n{number}", isolate=True)
        assert len(seqs) == 1
        if number % 2:
            rules.ack("q", node=f"n{number}", seqs=seqs)
    line = rules.state.topics["q"].queue.suspects  # type: ignore[union-attr]
    assert set(line.borrowed) >= {"n0", "n2", "n4", "n6", "n8", "n10"}
    assert len(line.borrowed) < 12


def test_an_ordinary_job_costs_a_queue_with_suspects_nothing_but_its_own_line(world: Rules) -> None:
    world.produce("q", [Record(data=b"tagged")])
    assert take(world, isolate=True) == [7, 8, 9, 10]
    assert numbers(world)["ready"] == 3
