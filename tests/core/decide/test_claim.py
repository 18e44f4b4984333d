"""Claiming: who gets which job, for how long, and who waits for it."""

from __future__ import annotations

import pytest

from tenure import Invalid, Overloaded, Record
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas, seqs
from tests.kit.rules import Rules, make_queue, numbers, snapshot

# What a claim gives


def test_a_claim_leases_a_job_until_its_deadline(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, lease_ms=5000)
    rules.produce("q", [Record(data=b"1", tag="t", meta=b'{"m":1}'), b"2"])
    claim = rules.claim("q", node="w")
    assert (claim.topic, claim.node, claim.seqs, claim.ready) == ("q", "w", [1], 1)
    assert claim.deadline == clock.wall_ms() + 5000
    assert claim.lease_id is not None
    assert claim.lease_id.startswith("lease_")
    (job,) = claim.jobs
    assert (job.data, job.tag, job.meta, job.ts) == (b"1", "t", b'{"m":1}', clock.wall_ms())
    assert claim.deliveries(1) == 1


def test_a_leased_job_is_hidden_from_everyone_its_holder_included(rules: Rules) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    assert (rules.claim("q", node="w", max_count=9)).seqs == []
    assert (rules.claim("q", node="v", max_count=9)).seqs == []


def test_a_claim_of_nothing_is_an_answer_and_leaves_no_trace(rules: Rules) -> None:
    make_queue(rules)
    before = snapshot(rules)
    claim = rules.claim("q", node="w", claim_id="c")
    assert (claim.jobs, claim.lease_id, claim.ready) == ([], None, 0)
    assert snapshot(rules) == before


def test_jobs_come_in_the_order_of_their_seqs(rules: Rules) -> None:
    make_queue(rules, jobs=5)
    assert (rules.claim("q", node="w", max_count=2)).seqs == [1, 2]
    assert (rules.claim("q", node="w", max_count=9)).seqs == [3, 4, 5]


def test_work_that_came_back_is_served_before_fresh_work(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=6)
    rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", seqs=[3])
    assert (rules.claim("q", node="v", max_count=2)).seqs == [3, 4]
    clock.advance(30_001)
    claim = rules.claim("q", node="v", max_count=5)
    assert claim.seqs == [1, 2, 3, 4, 5], "ascending within a claim"
    assert [claim.deliveries(seq) for seq in claim.seqs] == [2, 2, 3, 2, 1]


@pytest.mark.parametrize(("max_count", "given"), [(0, 1), (1, 1), (7, 7), (1000, 1000), (1001, 1000), (2**64, 1000)])
def test_the_number_asked_for_is_clamped(rules: Rules, max_count: int, given: int) -> None:
    make_queue(rules, jobs=1500)
    assert len((rules.claim("q", node="w", max_count=max_count)).jobs) == given


@pytest.mark.parametrize(("lease_ms", "given"), [(0, 100), (99, 100), (250, 250), (10**12, 86_400_000)])
def test_the_duration_of_a_lease_is_clamped(rules: Rules, clock: ManualClock, lease_ms: int, given: int) -> None:
    make_queue(rules, jobs=1)
    claim = rules.claim("q", node="w", lease_ms=lease_ms)
    assert claim.deadline == clock.wall_ms() + given


def test_one_claim_is_one_lease_and_no_two_claims_share_one(rules: Rules) -> None:
    make_queue(rules, jobs=30)
    ids = [(rules.claim("q", node="w", max_count=3)).lease_id for _ in range(10)]
    assert len(set(ids)) == 10


# Auto-ack


def test_auto_ack_hands_out_and_deletes_in_one_step(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=3)
    claim = rules.claim("q", node="w", max_count=2, auto_ack=True)
    assert (claim.seqs, claim.lease_id, claim.ready) == ([1, 2], None, 1)
    assert (rules.topic("q").count, numbers(rules)["in_flight"]) == (1, 0)
    clock.advance(10**6)
    assert (rules.claim("q", node="w", max_count=9)).seqs == [3]


# Claim ids


def test_the_same_claim_id_answers_the_same_claim(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=5)
    first = rules.claim("q", node="w", max_count=3, claim_id="c")
    clock.advance(1000)
    before = snapshot(rules)
    again = rules.claim("q", node="w", max_count=9, claim_id="c", lease_ms=99_000)
    assert (again.seqs, again.lease_id, again.deadline) == ([1, 2, 3], first.lease_id, first.deadline)
    assert again.deliveries(1) == 1
    assert snapshot(rules) == before, "no delivery is counted"


def test_a_repeat_answers_what_is_still_held(rules: Rules) -> None:
    make_queue(rules, jobs=3)
    rules.claim("q", node="w", max_count=3, claim_id="c")
    rules.ack("q", node="w", seqs=[2])
    assert (rules.claim("q", node="w", claim_id="c")).seqs == [1, 3]


def test_a_claim_id_is_free_once_its_lease_is_over(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=3)
    first = rules.claim("q", node="w", claim_id="c")
    rules.ack("q", node="w", seqs=[1])
    second = rules.claim("q", node="w", claim_id="c")
    assert (second.seqs, second.lease_id != first.lease_id) == ([2], True)
    clock.advance(30_001)
    third = rules.claim("q", node="w", claim_id="c")
    assert (third.seqs, third.deliveries(2), third.lease_id != second.lease_id) == ([2], 2, True)


def test_a_claim_id_belongs_to_its_node_and_its_queue(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    make_queue(rules, "other", jobs=2)
    rules.claim("q", node="w", claim_id="c")
    with pytest.raises(Invalid):
        rules.claim("q", node="v", claim_id="c")
    assert (rules.claim("other", node="v", claim_id="c")).seqs == [1]


# Caps


def test_the_in_flight_cap_holds_for_the_whole_queue(rules: Rules) -> None:
    make_queue(rules, jobs=9, max_in_flight=3)
    assert (rules.claim("q", node="w", max_count=2)).seqs == [1, 2]
    assert (rules.claim("q", node="v", max_count=2)).seqs == [3]
    with pytest.raises(Overloaded) as error:
        rules.claim("q", node="v")
    assert error.value.code == "in_flight_cap_exceeded"
    assert error.value.detail == {"limit": "max_in_flight", "max": 3}
    rules.ack("q", node="w", seqs=[1])
    assert (rules.claim("q", node="v", max_count=2)).seqs == [4]


def test_expiry_makes_room_under_the_cap(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=3, max_in_flight=1)
    rules.claim("q", node="w", lease_ms=1000)
    clock.advance(1001)
    assert (rules.claim("q", node="v")).seqs == [1]


# Data


def test_a_claim_over_several_appends_reads_each_record_once(rules: Rules) -> None:
    make_queue(rules)
    for size in (1, 3, 1, 2):
        rules.produce("q", [b"%d" % size] * size)
    rules.produce("q", [Record(data=b"full", tag="t")])
    rules.delete_records("q", seqs=[3])
    claim = rules.claim("q", node="w", max_count=100)
    assert datas(claim.jobs) == [b"1", b"3", b"3", b"1", b"2", b"2", b"full"]
    assert seqs(claim.jobs) == [1, 2, 4, 5, 6, 7, 8]
