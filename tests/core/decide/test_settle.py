"""Ack, nack, extend, and what happens to a lease whose time is up."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Invalid, LeaseLost
from tenure.contract.replies import Delivery
from tenure.testing.clock import ManualClock
from tests.kit.brokers import seqs
from tests.kit.rules import Rules, make_queue, numbers, read, snapshot

# Ack


def test_an_ack_is_the_delete(rules: Rules) -> None:
    make_queue(rules, jobs=3)
    rules.claim("q", node="w", max_count=2)
    done = rules.ack("q", node="w", seqs=[1, 2])
    assert (done.topic, done.count, done.skipped, done.ready, done.in_flight) == ("q", 2, [], 1, 0)
    assert seqs(read(rules, "q")) == [3]
    assert rules.topic("q").bytes == 1


def test_a_repeated_ack_has_the_same_effect_and_reports_the_seqs(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2)
    rules.ack("q", node="w", seqs=[1])
    before = snapshot(rules)
    again = rules.ack("q", node="w", seqs=[1])
    assert (again.count, again.skipped) == (0, [1])
    assert snapshot(rules) == before


def test_only_the_holder_can_ack(rules: Rules) -> None:
    make_queue(rules, jobs=4)
    rules.claim("q", node="w", max_count=2)
    rules.claim("q", node="v")
    done = rules.ack("q", node="w", seqs=[4, 3, 2, 1, 99])
    assert (done.count, done.skipped, done.in_flight, done.ready) == (2, [4, 3, 99], 1, 1)


def test_a_seq_named_twice_is_acked_once(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2)
    assert (rules.ack("q", node="w", seqs=[2, 2, 1, 2])).count == 2
    assert rules.topic("q").count == 0


def test_a_claim_can_be_acked_as_a_range(rules: Rules) -> None:
    make_queue(rules, jobs=1000)
    rules.claim("q", node="w", max_count=1000)
    assert (rules.ack("q", node="w", seqs=range(1, 1001))).count == 1000


def test_acks_in_any_order_leave_exactly_what_was_not_acked(rules: Rules) -> None:
    make_queue(rules, jobs=10)
    rules.claim("q", node="w", max_count=10)
    for part in ([9, 2], [5], [10, 1, 3]):
        rules.ack("q", node="w", seqs=part)
    assert seqs(read(rules, "q")) == [4, 6, 7, 8]
    assert rules.topic("q").bytes == 4


# Naming jobs: leases and fences


SETTLERS = ("ack", "nack", "extend")


def settle(rules: Rules, how: str, **options: Any) -> tuple[int, list[int]]:
    """Ack, nack or extend; how many jobs it was about, and which were skipped."""
    if how == "extend":
        options.setdefault("lease_ms", 5000)
        extension = rules.extend("q", **options)
        return len(extension.deadlines), extension.skipped
    done = rules.ack("q", **options) if how == "ack" else rules.nack("q", **options)
    return done.count, done.skipped


@pytest.mark.parametrize("how", SETTLERS)
def test_a_lease_id_alone_means_all_that_is_still_held_under_it(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=6)
    first = rules.claim("q", node="w", max_count=3)
    rules.claim("q", node="w", max_count=3)
    rules.ack("q", node="w", seqs=[2])
    assert settle(rules, how, node="w", lease_id=first.lease_id) == (2, [])
    held = [job.seq for job in rules.jobs("q", state="in_flight").items]
    assert held == ([1, 3, 4, 5, 6] if how == "extend" else [4, 5, 6])


@pytest.mark.parametrize("how", SETTLERS)
def test_a_lease_id_needs_its_node(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=2)
    claim = rules.claim("q", node="w", max_count=2)
    before = snapshot(rules)
    assert settle(rules, how, node="v", lease_id=claim.lease_id) == (0, [])
    assert snapshot(rules) == before


@pytest.mark.parametrize("how", SETTLERS)
@pytest.mark.parametrize("lease_id", ["", "lease_", "lease_zz", "lease_0", "nonsense", "lease_" + "f" * 60])
def test_a_lease_id_that_never_was_holds_nothing(rules: Rules, how: str, lease_id: str) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2)
    assert settle(rules, how, node="w", lease_id=lease_id) == (0, [])
    assert settle(rules, how, node="w", seqs=[1], lease_id=lease_id) == (0, [1])
    assert settle(rules, how, node="w", seqs=[1], lease_ids=[lease_id]) == (0, [1])


@pytest.mark.parametrize("how", SETTLERS)
def test_a_lease_id_given_with_seqs_fences_them_all(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=4)
    first = rules.claim("q", node="w", max_count=2)
    rules.claim("q", node="w", max_count=2)
    assert settle(rules, how, node="w", seqs=[1, 2, 3, 4], lease_id=first.lease_id) == (2, [3, 4])


@pytest.mark.parametrize("how", SETTLERS)
def test_a_stale_fence_skips_its_seq_though_the_node_is_right(rules: Rules, clock: ManualClock, how: str) -> None:
    make_queue(rules, jobs=2)
    old = rules.claim("q", node="w", max_count=2)
    clock.advance(30_001)
    new = rules.claim("q", node="w", max_count=2)
    assert settle(rules, how, node="w", seqs=[1, 2], lease_ids=[old.lease_id, new.lease_id]) == (1, [1])


@pytest.mark.parametrize("how", SETTLERS)
def test_fences_of_another_number_than_seqs_are_refused(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=2)
    claim = rules.claim("q", node="w", max_count=2)
    before = snapshot(rules)
    attempts: list[dict[str, Any]] = [
        {"seqs": [1, 2], "lease_ids": [claim.lease_id]},
        {"seqs": [1], "lease_ids": []},
        {"lease_id": claim.lease_id, "lease_ids": [claim.lease_id]},
        {"lease_ids": [claim.lease_id]},
        {},
        {"seqs": []},
    ]
    for options in attempts:
        with pytest.raises(Invalid):
            settle(rules, how, node="w", **options)
    assert snapshot(rules) == before


@pytest.mark.parametrize("how", SETTLERS)
def test_more_seqs_than_a_claim_can_hold_are_refused(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=1)
    with pytest.raises(Invalid) as error:
        settle(rules, how, node="w", seqs=list(range(1001)))
    assert error.value.code == "batch_too_large"


@pytest.mark.parametrize("how", SETTLERS)
def test_strict_refuses_all_where_one_living_seq_is_not_the_caller_s(rules: Rules, how: str) -> None:
    make_queue(rules, jobs=4)
    rules.claim("q", node="w", max_count=2)
    rules.ack("q", node="w", seqs=[1])
    before = snapshot(rules)
    with pytest.raises(LeaseLost) as error:
        settle(rules, how, node="w", seqs=[1, 2, 3, 4], strict=True)
    assert (error.value.code, error.value.detail["skipped"]) == ("precondition_failed", [3, 4])
    assert snapshot(rules) == before
    assert settle(rules, how, node="w", seqs=[1, 2, 99], strict=True) == (1, [1, 99]), "gone is only skipped"


# Nack


def test_a_nack_gives_the_job_back_at_once(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2)
    done = rules.nack("q", node="w", seqs=[2, 1, 77])
    assert (done.topic, done.count, done.skipped, done.ready, done.in_flight) == ("q", 2, [77], 2, 0)
    claim = rules.claim("q", node="v", max_count=2)
    assert (claim.seqs, claim.deliveries(1), claim.deliveries(2)) == ([1, 2], 2, 2)


def test_a_nack_with_a_delay_hides_the_job_until_then(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    done = rules.nack("q", node="w", seqs=[1], delay_ms=500)
    assert (done.ready, done.in_flight, numbers(rules)["delayed"]) == (0, 0, 1)
    clock.advance(499)
    assert (rules.claim("q", node="v")).seqs == []
    clock.advance(1)
    assert (rules.claim("q", node="v")).seqs == [1]


def test_a_delay_is_clamped_to_a_day(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    rules.nack("q", node="w", seqs=[1], delay_ms=10**15)
    clock.advance(86_400_000)
    assert (rules.claim("q", node="v")).seqs == [1]


def test_the_reason_of_a_nack_is_kept_with_the_delivery(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    start_ms = clock.wall_ms()
    claim = rules.claim("q", node="w")
    clock.advance(40)
    rules.nack("q", node="w", seqs=[1], reason="no such file: é")
    job = rules.job("q", 1)
    assert claim.lease_id is not None
    assert job.reason == "no such file: é"
    assert job.history == [Delivery(claim.lease_id, "w", start_ms, start_ms + 40, "nack", "no such file: é")]


def test_a_reason_may_be_empty_and_has_a_limit_in_bytes(rules: Rules) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    with pytest.raises(Invalid):
        rules.nack("q", node="w", seqs=[1], reason="é" * 513)
    assert (rules.nack("q", node="w", seqs=[1], reason="")).count == 1
    rules.claim("q", node="w")
    assert (rules.nack("q", node="w", seqs=[1], reason="é" * 512)).count == 1


def test_back_off_applies_to_nacks_without_a_delay(rules: Rules, clock: ManualClock) -> None:
    backoff = {"min_ms": 100, "max_ms": 350, "factor": 2, "jitter": False}
    make_queue(rules, jobs=1, retry_backoff=backoff)
    for delay_ms in (100, 200, 350, 350):
        rules.claim("q", node="w")
        rules.nack("q", node="w", seqs=[1])
        clock.advance(delay_ms - 1)
        assert numbers(rules)["ready"] == 0
        clock.advance(1)
        assert numbers(rules)["ready"] == 1
    rules.claim("q", node="w")
    rules.nack("q", node="w", seqs=[1], delay_ms=0)
    assert numbers(rules)["ready"] == 1, "a delay that was given wins, 0 too"


def test_back_off_applies_to_expiries(rules: Rules, clock: ManualClock) -> None:
    backoff = {"min_ms": 100, "max_ms": 10_000, "factor": 3, "jitter": False}
    make_queue(rules, jobs=1, retry_backoff=backoff)
    for delay_ms in (100, 300):
        rules.claim("q", node="w", lease_ms=1000)
        clock.advance(1000 + delay_ms - 1)
        assert numbers(rules)["delayed"] == 1
        clock.advance(1)
        assert numbers(rules)["ready"] == 1


def test_a_job_that_expired_long_ago_has_its_back_off_behind_it(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, retry_backoff={"min_ms": 100, "jitter": False})
    rules.claim("q", node="w", lease_ms=1000)
    clock.advance(60_000)
    assert (rules.claim("q", node="v")).seqs == [1]


# Extend


def test_an_extend_sets_the_deadline_from_now(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2, lease_ms=10_000)
    clock.advance(4000)
    extension = rules.extend("q", node="w", seqs=[1, 2, 9], lease_ms=5000)
    assert extension.deadlines == dict.fromkeys([1, 2], clock.wall_ms() + 5000), "it sets, it does not add"
    assert (extension.topic, extension.skipped) == ("q", [9])
    clock.advance(5000)
    assert numbers(rules)["in_flight"] == 2
    clock.advance(1)
    assert numbers(rules)["in_flight"] == 0


def test_an_extend_may_shorten_a_lease(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w", lease_ms=60_000)
    rules.extend("q", node="w", seqs=[1], lease_ms=200)
    clock.advance(201)
    assert (rules.claim("q", node="v")).seqs == [1]


def test_an_extend_counts_no_delivery_and_keeps_the_lease_id(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    claim = rules.claim("q", node="w", max_count=2)
    for part in ([1], [1, 2], [2]):
        rules.extend("q", node="w", seqs=part, lease_ms=5000)
    assert [(job.lease_id, job.deliveries) for job in rules.jobs("q", state="in_flight").items] == [
        (claim.lease_id, 1)
    ] * 2


def test_an_extend_of_some_jobs_leaves_the_others_where_they_were(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=5)
    claim = rules.claim("q", node="w", max_count=5, lease_ms=1000)
    rules.extend("q", node="w", seqs=[2, 4], lease_ms=3000)
    rules.extend("q", node="w", seqs=[4], lease_ms=5000)
    clock.advance(1001)
    assert [job.seq for job in rules.jobs("q", state="in_flight").items] == [2, 4]
    clock.advance(2000)
    assert [job.seq for job in rules.jobs("q", state="in_flight").items] == [4]
    assert (rules.ack("q", node="w", lease_id=claim.lease_id)).count == 1, "still the one lease"
    assert (rules.claim("q", node="v", max_count=9)).seqs == [1, 2, 3, 5]


def test_an_extend_by_lease_id_may_leave_the_time_out(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, lease_ms=7000)
    claim = rules.claim("q", node="w", lease_ms=1000)
    extension = rules.extend("q", node="w", lease_id=claim.lease_id)
    assert extension.deadlines == {1: clock.wall_ms() + 7000}
    with pytest.raises(Invalid):
        rules.extend("q", node="w", seqs=[1])


def test_the_time_of_an_extend_is_clamped(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    for lease_ms, given in ((0, 100), (10**12, 86_400_000)):
        extension = rules.extend("q", node="w", seqs=[1], lease_ms=lease_ms)
        assert extension.deadlines == {1: clock.wall_ms() + given}


# Expiry


@pytest.mark.parametrize("how", SETTLERS)
def test_a_lease_is_good_up_to_its_deadline_that_moment_included(rules: Rules, clock: ManualClock, how: str) -> None:
    make_queue(rules, jobs=2)
    rules.claim("q", node="w", max_count=2, lease_ms=1000)
    clock.advance(1000)
    assert settle(rules, how, node="w", seqs=[1, 2]) == (2, [])


@pytest.mark.parametrize("how", SETTLERS)
def test_past_its_deadline_a_lease_is_over_though_nobody_reclaimed_the_job(
    rules: Rules, clock: ManualClock, how: str
) -> None:
    make_queue(rules, jobs=2)
    claim = rules.claim("q", node="w", max_count=2, lease_ms=1000)
    clock.advance(1001)
    assert settle(rules, how, node="w", seqs=[1, 2]) == (0, [1, 2])
    assert settle(rules, how, node="w", lease_id=claim.lease_id) == (0, [])
    assert (numbers(rules)["in_flight"], numbers(rules)["ready"]) == (0, 2)


def test_an_expired_job_is_claimable_and_counts_one_delivery_more(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    for deliveries in (1, 2, 3):
        claim = rules.claim("q", node="w", lease_ms=1000)
        assert (claim.seqs, claim.deliveries(1)) == ([1], deliveries)
        clock.advance(1001)
    assert numbers(rules) | {"oldest_ready_ms": 0} == {
        "ready": 1,
        "in_flight": 0,
        "delayed": 0,
        "parked": 0,
        "dead": 0,
        "dead_lettered": 0,
        "oldest_ready_ms": 0,
        "ack_holes": 0,
        "suspects": 0,
    }


def test_a_slow_worker_cannot_touch_what_another_holds_now(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="slow", lease_ms=1000)
    clock.advance(1001)
    rules.claim("q", node="quick")
    before = snapshot(rules)
    assert (rules.ack("q", node="slow", seqs=[1])).skipped == [1]
    assert (rules.nack("q", node="slow", seqs=[1])).skipped == [1]
    assert (rules.extend("q", node="slow", seqs=[1], lease_ms=5000)).skipped == [1]
    assert snapshot(rules) == before
    assert (rules.ack("q", node="quick", seqs=[1])).count == 1
