"""Ack holes: counted exactly, capped without wedging."""

from __future__ import annotations

import pytest

from tenure import Overloaded
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, numbers, snapshot


def test_holes_are_the_runs_of_unacked_jobs_below_the_highest_acked_one(rules: Rules) -> None:
    make_queue(rules, jobs=12)
    rules.claim("q", node="w", max_count=10)
    expected = [(5, 1), (3, 2), (4, 1), (9, 2), (7, 3), (1, 3), (8, 2), (2, 1), (6, 0), (10, 0)]
    for seq, holes in expected:
        rules.ack("q", node="w", seqs=[seq])
        assert numbers(rules)["ack_holes"] == holes, f"after {seq}"


def test_parked_delayed_and_deleted_jobs_are_no_holes(rules: Rules) -> None:
    make_queue(rules, jobs=5, dlq_strategy="block")
    rules.claim("q", node="w", max_count=5)
    rules.ack("q", node="w", seqs=[5])
    assert numbers(rules)["ack_holes"] == 1
    rules.nack("q", node="w", seqs=[1], delay_ms=1000)
    rules.nack("q", node="w", seqs=[2], dead=True)
    rules.delete_records("q", seqs=[3])
    assert numbers(rules)["ack_holes"] == 1
    rules.nack("q", node="w", seqs=[4], delay_ms=1000)
    assert numbers(rules)["ack_holes"] == 0


def test_above_the_cap_only_fresh_work_is_refused(rules: Rules) -> None:
    make_queue(rules, jobs=9, max_ack_holes=1)
    rules.claim("q", node="w", max_count=5)
    rules.ack("q", node="w", seqs=[2])
    assert (rules.claim("q", node="v")).seqs == [6], "at the cap is not above it"
    rules.ack("q", node="w", seqs=[4])
    before = snapshot(rules)
    with pytest.raises(Overloaded) as error:
        rules.claim("q", node="v")
    assert (error.value.code, error.value.detail["limit"]) == ("ack_hole_cap_exceeded", "max_ack_holes")
    assert snapshot(rules) == before
    rules.nack("q", node="w", seqs=[3])
    assert (rules.claim("q", node="v", max_count=9)).seqs == [3], "what is in a hole may drain"
    assert (rules.ack("q", node="w", seqs=[1])).count == 1, "acks always go through"
    assert (rules.claim("q", node="v", max_count=9)).seqs == [7, 8, 9]


def test_the_cap_never_wedges_the_queue(rules: Rules, clock: ManualClock) -> None:
    """Every second job is acked and the rest is left to run out: claims must always find a way to the end."""
    make_queue(rules, jobs=60, max_ack_holes=2)
    done = 0
    for _ in range(500):
        try:
            claim = rules.claim("q", node="w", max_count=7, lease_ms=1000)
        except Overloaded:
            clock.advance(1001)
            continue
        if not claim.jobs:
            if not rules.topic("q").count:
                break
            clock.advance(1001)
            continue
        done += (rules.ack("q", node="w", seqs=claim.seqs[::2])).count
    assert (done, rules.topic("q").count) == (60, 0)
