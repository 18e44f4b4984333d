"""Looking at a queue: jobs by state, one job, live leases. Looking changes nothing."""

from __future__ import annotations

import pytest

from tenure import Invalid, NotFound, Record, Settings
from tenure.contract.replies import Delivery, JobRow, LeaseRow
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, snapshot


def listed(rules: Rules, state: str) -> list[int]:
    return [job.seq for job in rules.jobs("q", state=state).items]


def test_every_job_is_listed_in_its_state_and_in_no_other(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=6, dlq_strategy="block")
    rules.produce("q", [Record(data=b"7", delay_ms=9000)])
    rules.claim("q", node="w", max_count=5)
    rules.nack("q", node="w", seqs=[2])
    rules.nack("q", node="w", seqs=[3], delay_ms=500)
    rules.nack("q", node="w", seqs=[4], dead=True)
    assert listed(rules, "ready") == [2, 6]
    assert listed(rules, "in_flight") == [1, 5]
    assert listed(rules, "delayed") == [3, 7]
    assert listed(rules, "parked") == [4]
    clock.advance(500)
    assert (listed(rules, "ready"), listed(rules, "delayed")) == ([2, 3, 6], [7])
    clock.advance(40_000)
    assert (listed(rules, "ready"), listed(rules, "in_flight")) == ([1, 2, 3, 5, 6, 7], [])


def test_a_job_is_listed_with_what_is_known_of_it(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=4, dlq_strategy="block")
    at = clock.wall_ms() + 800
    rules.produce("q", [Record(data=b"5", deliver_at=at)])
    claim = rules.claim("q", node="w", max_count=3, lease_ms=5000)
    rules.nack("q", node="w", seqs=[2], delay_ms=700, reason="busy")
    rules.nack("q", node="w", seqs=[3], dead=True, reason="poison")

    def only(state: str) -> list[JobRow]:
        return rules.jobs("q", state=state).items

    assert only("ready") == [JobRow(4, "ready", 0)]
    assert only("in_flight") == [
        JobRow(
            1,
            "in_flight",
            1,
            node="w",
            lease_id=claim.lease_id,
            since=claim.deadline - 5000,
            deadline=claim.deadline,
        )
    ]
    assert only("delayed") == [
        JobRow(2, "delayed", 1, deliver_at=clock.wall_ms() + 700, reason="busy"),
        JobRow(5, "delayed", 0, deliver_at=at),
    ]
    assert only("parked") == [JobRow(3, "parked", 1, reason="poison")]


@pytest.mark.parametrize("state", ["ready", "in_flight", "delayed", "parked"])
def test_pages_of_jobs_follow_each_other(rules: Rules, state: str) -> None:
    make_queue(rules, jobs=7, dlq_strategy="block")
    if state != "ready":
        rules.claim("q", node="w", max_count=7)
    if state == "delayed":
        rules.nack("q", node="w", seqs=list(range(1, 8)), delay_ms=1000)
    if state == "parked":
        rules.nack("q", node="w", seqs=list(range(1, 8)), dead=True)
    found, cursor = [], None
    for expected in (3, 3, 1):
        page = rules.jobs("q", state=state, limit=3, cursor=cursor)
        assert len(page.items) == expected
        found += [job.seq for job in page.items]
        cursor = page.next_cursor
    assert (found, cursor) == ([1, 2, 3, 4, 5, 6, 7], None)


@pytest.mark.parametrize("state", ["ready", "in_flight"])
def test_a_page_that_is_just_full_is_the_last_one(rules: Rules, state: str) -> None:
    make_queue(rules, jobs=3)
    if state == "in_flight":
        rules.claim("q", node="w", max_count=3)
    page = rules.jobs("q", state=state, limit=3)
    assert ([job.seq for job in page.items], page.next_cursor) == ([1, 2, 3], None)


def test_ready_jobs_on_both_sides_of_the_fresh_cursor_are_paged_in_order(rules: Rules) -> None:
    make_queue(rules, jobs=700)
    rules.claim("q", node="w", max_count=300)
    rules.nack("q", node="w", seqs=[5, 250])
    rules.delete_records("q", seqs=[301])
    found, cursor = list[int](), None
    while True:
        page = rules.jobs("q", limit=100, cursor=cursor)
        found += [job.seq for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found == [5, 250, *range(302, 701)]


def test_an_unknown_state_is_refused(rules: Rules) -> None:
    make_queue(rules)
    with pytest.raises(Invalid):
        rules.jobs("q", state="acked")


def test_looking_changes_nothing_but_lets_time_pass(rules: Rules) -> None:
    make_queue(rules, jobs=5)
    rules.claim("q", node="w", max_count=3)
    before = snapshot(rules)
    rules.topics()
    rules.topic("q")
    rules.leases("q")
    rules.job("q", 1)
    for state in ("ready", "in_flight", "delayed", "parked"):
        rules.jobs("q", state=state)
    rules.diff("q")
    assert snapshot(rules) == before


# One job


def test_a_job_comes_with_its_record_its_state_and_its_deliveries(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules)
    rules.produce("q", [Record(data=b"1", tag="t")])
    begin = clock.wall_ms()
    first = rules.claim("q", node="a", lease_ms=1000)
    clock.advance(5000)
    second = rules.claim("q", node="b")
    clock.advance(10)
    rules.nack("q", node="b", seqs=[1], reason="no")
    assert first.lease_id is not None
    assert second.lease_id is not None
    job = rules.job("q", 1)
    assert (bytes(job.data), job.tag, job.meta) == (b"1", "t", None)
    assert (job.topic, job.seq, job.state, job.deliveries, job.reason) == ("q", 1, "ready", 2, "no")
    assert job.history == [
        Delivery(first.lease_id, "a", begin, begin + 1000, "expired"),
        Delivery(second.lease_id, "b", begin + 5000, begin + 5010, "nack", "no"),
    ]


def test_the_last_32_deliveries_of_a_job_are_kept(rules: Rules) -> None:
    make_queue(rules, jobs=1)
    for number in range(40):
        rules.claim("q", node="w")
        rules.nack("q", node="w", seqs=[1], reason=str(number))
    history = rules.job("q", 1).history
    assert [delivery.reason for delivery in history] == [str(number) for number in range(8, 40)]


@pytest.mark.parametrize("seq", [0, 1, 4, 2**64, pytest.param(10**5000, id="huge")])
def test_a_job_that_is_done_or_never_was_is_not_found(rules: Rules, seq: int) -> None:
    make_queue(rules, jobs=3)
    rules.claim("q", node="w", auto_ack=True)
    with pytest.raises(NotFound):
        rules.job("q", seq)


# Leases


def test_live_leases_are_listed_with_what_they_hold(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=5)
    begin = clock.wall_ms()
    first = rules.claim("q", node="a", max_count=3, lease_ms=1000)
    clock.advance(100)
    second = rules.claim("q", node="b", lease_ms=5000)
    assert first.lease_id is not None
    assert second.lease_id is not None
    rules.ack("q", node="a", seqs=[2])
    assert rules.leases("q").items == [
        LeaseRow(first.lease_id, "a", since=begin, deadline=begin + 1000, seqs=[1, 3]),
        LeaseRow(second.lease_id, "b", since=begin + 100, deadline=begin + 5100, seqs=[4]),
    ]
    page = rules.leases("q", limit=1)
    assert [lease.node for lease in rules.leases("q", cursor=page.next_cursor).items] == ["b"]
    clock.advance(1000)
    assert [lease.node for lease in rules.leases("q").items] == ["b"]
    rules.nack("q", node="b", lease_id=second.lease_id)
    assert rules.leases("q").items == []


def test_a_lease_whose_jobs_were_extended_apart_is_shown_with_their_earliest_deadline(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=4)
    begin = clock.wall_ms()
    claim = rules.claim("q", node="a", max_count=4, lease_ms=1000, claim_id="c")
    rules.extend("q", node="a", seqs=[1], lease_ms=9000)
    rules.extend("q", node="a", seqs=[3], lease_ms=5000)
    for held, deadline in (([1, 2, 3, 4], begin + 1000), ([1, 3], begin + 5000)):
        (listed,) = rules.leases("q").items
        (drawn,) = rules.strip("q").leases
        again = rules.claim("q", node="a", claim_id="c")
        assert (listed.deadline, listed.seqs) == (deadline, held)
        assert (drawn.deadline, drawn.seqs, drawn.held) == (deadline, held, len(held))
        assert (again.lease, again.deadline, again.seqs) == (claim.lease, deadline, held)
        rules.ack("q", node="a", seqs=[2, 4])


def test_a_page_is_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(page_max=2))
    make_queue(rules, jobs=3)
    assert len(rules.jobs("q", limit=10**9).items) == 2
    assert len(rules.jobs("q", limit=0).items) == 1
