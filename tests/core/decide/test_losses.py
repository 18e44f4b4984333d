"""Losses: a delivery that says nothing about the job is no try."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure import Conflict, LeaseLost, Record, Settings
from tenure.contract import provenance
from tenure.contract.replies import BegunJob, EndedNode, Grant
from tenure.testing.clock import ManualClock
from tests.kit.rules import Rules, make_queue, numbers, read, snapshot

LEASE_MS = 1_000
RETRY_MS = Settings().begun_retry_ms
WAIT_MS = Settings().suspects_wait_ms


def isolated(rules: Rules, node: str = "w", **options: Any) -> Grant:
    """Claim one job, or more, under a lease that isolates."""
    return rules.claim("q", node=node, isolate=True, **{"lease_ms": LEASE_MS, **options})


def suspects(rules: Rules, node: str = "s", **options: Any) -> Grant:
    """Claim as the process does that takes suspects."""
    return isolated(rules, node, suspects=True, **options)


def begin(rules: Rules, claim: Grant) -> BegunJob:
    """Begin the first job of a claim."""
    return rules.begin("q", node=claim.node, seq=claim.seqs[0], lease_id=claim.lease_id)


def lose_begun(rules: Rules, clock: ManualClock, times: int = 1) -> None:
    """Begin the one job of the queue and lose its worker, some times over."""
    for _ in range(times):
        claim = suspects(rules) if numbers(rules)["suspects"] else isolated(rules)
        begin(rules, claim)
        rules.lose("q", claim.lease)
        clock.advance(Settings().begun_retry_ms_max)


def past(rules: Rules, seq: int = 1) -> tuple[int, int, int]:
    """The deliveries, tries and losses of a job."""
    row = rules.job("q", seq)
    return row.deliveries, row.deliveries if row.tries is None else row.tries, row.lost


# Lost, and no try


def test_a_lease_that_isolates_and_runs_out_is_lost_and_no_try(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1)
    isolated(rules)
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (1, 0, 1)
    assert [delivery.end for delivery in rules.job("q", 1).history] == ["lost"]
    assert numbers(rules)["suspects"] == 1
    claim = suspects(rules)
    assert (claim.seqs, claim.deliveries(1), claim.tries, claim.lost) == ([1], 2, {1: 1}, {1: 1})


def test_a_lease_that_does_not_isolate_counts_as_ever(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dlq_strategy="block")
    rules.claim("q", node="w", lease_ms=LEASE_MS)
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (1, 1, 0)
    assert (rules.claim("q", node="w").seqs, numbers(rules)["parked"]) == ([], 1)


def test_a_worker_that_fell_silent_loses_what_it_holds_at_once(rules: Rules) -> None:
    make_queue(rules, jobs=3)
    claim = isolated(rules, max_count=2)
    rules.lose("q", claim.lease, claim.lease, 12345)
    assert [past(rules, seq) for seq in (1, 2)] == [(1, 0, 1)] * 2
    assert (numbers(rules)["suspects"], numbers(rules)["ready"]) == (2, 3)
    rules.lose("q", claim.lease)
    assert past(rules) == (1, 0, 1), "what is lost is lost once"


def test_a_retry_back_off_of_the_queue_is_for_tries(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, retry_backoff={"min_ms": 60_000, "jitter": False})
    isolated(rules)
    clock.advance(LEASE_MS + 1)
    assert suspects(rules).seqs == [1]


def test_a_lease_from_before_the_last_opening_neither_counts_nor_suspects(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1)
    isolated(rules)
    rules.open()
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (1, 0, 0)
    assert [delivery.end for delivery in rules.job("q", 1).history] == ["expired"]
    assert numbers(rules)["suspects"] == 0
    assert isolated(rules).seqs == [1], "so it is in line with all others"


def test_a_lease_that_ran_out_before_the_log_was_opened_again_was_lost(rules: Rules, clock: ManualClock) -> None:
    """A replay judges it as the broker did which had the log open by then."""
    make_queue(rules, jobs=1)
    isolated(rules)
    clock.advance(LEASE_MS + 1)
    rules.put_topic("other")  # the log goes on to a time after the deadline
    rules.open()
    assert past(rules) == (1, 0, 1)


def test_a_lease_that_ran_out_while_no_broker_ran_is_from_before_also_beside_jobs_that_wait_for_the_wall_clock(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=1)
    rules.produce("q", [Record(data=b"later", deliver_at=clock.wall_ms() + 60_000)])
    isolated(rules)
    clock.advance(LEASE_MS + 1)
    rules.open()
    assert past(rules) == (1, 0, 0)


def test_an_extended_lease_from_before_the_last_opening_is_still_from_before(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    isolated(rules)
    rules.open()
    rules.extend("q", node="w", seqs=[1], lease_ms=LEASE_MS)
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (1, 0, 0)


def test_a_connection_that_ends_gives_back_what_was_not_read_and_counts_no_try(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    plain, apart = rules.claim("q", node="w"), isolated(rules)
    rules.release("q", plain.lease, apart.lease)
    assert [past(rules, seq) for seq in (1, 2)] == [(1, 1, 0), (1, 0, 0)]


# Begun


def test_a_begun_job_that_is_lost_has_one_try_more_and_comes_back_ever_later(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=0)
    waits: list[int] = []
    for turn in range(1, 8):
        claim = isolated(rules) if turn == 1 else suspects(rules)
        begin(rules, claim)
        rules.lose("q", claim.lease)
        assert past(rules) == (turn, turn, turn)
        due_ms = rules.job("q", 1).deliver_at
        assert due_ms is not None
        waits.append(due_ms - clock.wall_ms())
        clock.advance(waits[-1] - 1)
        assert suspects(rules).seqs == []
        clock.advance(1)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_a_begun_job_whose_lease_runs_out_has_one_try_more(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=2)
    claim = isolated(rules, max_count=2)
    begin(rules, claim)
    clock.advance(LEASE_MS + 1)
    assert [past(rules, seq) for seq in (1, 2)] == [(1, 1, 1), (1, 0, 1)], "only the one that was begun"
    assert rules.job("q", 1).state == "delayed"


def test_a_job_that_was_begun_and_lost_too_often_is_dead_and_its_letter_says_why(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=1, max_deliveries=5, dead_letter="dead")
    for _ in range(4):
        lose_begun(rules, clock)
    begin(rules, suspects(rules, "box-7"))
    rules.end_node("q", node="box-7", seqs=[1], exit_code=137)
    clock.advance(Settings().begun_retry_ms_max)
    assert suspects(rules).seqs == []
    (letter,) = read(rules, "dead")
    origin = provenance.read(letter.meta)
    assert origin is not None
    assert origin.reason == "its worker was lost 5 times while running it (last: box-7, exit code 137)"
    assert (origin.deliveries, origin.lost) == (5, 5)


def test_a_letter_of_one_loss_says_once_and_one_of_an_expiry_names_no_exit_code(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dlq_strategy="block")
    begin(rules, isolated(rules))
    clock.advance(LEASE_MS + 1 + RETRY_MS)
    assert suspects(rules).seqs == []
    assert rules.job("q", 1).reason == "its worker was lost once while running it (last: w)"


def test_a_job_that_fails_by_itself_is_dead_for_its_last_reason_whatever_was_lost_or_returned_after_it(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=1, max_deliveries=2, dlq_strategy="block")
    rules.nack("q", node="w", seqs=isolated(rules).seqs, reason="it fails")
    rules.return_jobs("q", node="w", seqs=rules.claim("q", node="w").seqs, reason="drained")
    isolated(rules)
    rules.end_node("q", node="w", seqs=[1], exit_code=1)
    rules.claim("q", node="w", lease_ms=LEASE_MS)
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (4, 2, 1)
    assert rules.claim("q", node="w").seqs == []
    assert rules.job("q", 1).state == "parked"
    assert rules.job("q", 1).reason == "it fails"


def test_a_job_that_its_worker_rejects_is_dead_for_that_reason_and_no_suspect(rules: Rules, clock: ManualClock) -> None:
    """A verdict clears the losses, also of what is left of the job."""
    make_queue(rules, jobs=1, dead_letter="dead")
    lose_begun(rules, clock)
    rules.nack("q", node="s", seqs=suspects(rules).seqs, dead=True)
    (letter,) = read(rules, "dead")
    assert provenance.read(letter.meta) == ("q", 1, 2, "rejected", 0, 0)


def test_begin_is_repeated_without_effect(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    claim = isolated(rules)
    assert begin(rules, claim) == BegunJob("q", 1)
    before = snapshot(rules)
    clock.advance(WAIT_MS // 60)
    assert begin(rules, claim) == BegunJob("q", 1)
    assert snapshot(rules) == before


def test_begin_is_refused_while_the_group_has_another_job_begun(rules: Rules) -> None:
    make_queue(rules, jobs=4)
    make_queue(rules, "r", jobs=1)
    first, second = isolated(rules, "a", group="g"), isolated(rules, "b", group="g")
    other, elsewhere = isolated(rules, "c", group="h"), rules.claim("r", node="b", isolate=True, group="g")
    begin(rules, first)
    begin(rules, other)
    before = snapshot(rules)
    for topic, claim in (("q", second), ("r", elsewhere)):
        with pytest.raises(Conflict) as caught:
            rules.begin(topic, node="b", seq=claim.seqs[0], lease_id=claim.lease_id)
        assert caught.value.code == "busy"
    assert snapshot(rules) == before
    rules.ack("q", node="a", seqs=first.seqs)
    begin(rules, second)


def test_a_node_without_a_group_is_a_group_of_its_own(rules: Rules) -> None:
    make_queue(rules, jobs=3)
    first, second, other = isolated(rules), isolated(rules), isolated(rules, "v")
    begin(rules, first)
    begin(rules, other)
    with pytest.raises(Conflict):
        begin(rules, second)


def test_a_job_that_runs_for_long_makes_place_for_another_and_is_not_blamed_any_more(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, jobs=2)
    first, second = isolated(rules, lease_ms=10 * WAIT_MS), isolated(rules, lease_ms=10 * WAIT_MS)
    begin(rules, first)
    clock.advance(WAIT_MS - 1)
    with pytest.raises(Conflict):
        begin(rules, second)
    clock.advance(1)
    begin(rules, second)
    rules.lose("q", first.lease, second.lease)
    assert [past(rules, seq) for seq in (1, 2)] == [(1, 0, 1), (1, 1, 1)]


def test_a_job_whose_lease_ran_out_does_not_keep_its_group_busy(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    make_queue(rules, "r", jobs=1)
    begin(rules, isolated(rules))
    held = rules.claim("r", node="w", isolate=True)
    clock.advance(LEASE_MS + 1)
    rules.begin("r", node="w", seq=1, lease_id=held.lease_id)


def test_begin_is_refused_for_what_the_caller_does_not_hold(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=2)
    claim, plain = isolated(rules), rules.claim("q", node="w")
    for options in ({"node": "v"}, {"seq": 9}, {"seq": plain.seqs[0]}, {"lease_id": "lease_1"}):
        with pytest.raises(LeaseLost):
            rules.begin("q", **{"node": "w", "seq": 1, "lease_id": claim.lease_id, **options})
    with pytest.raises(Conflict) as caught:
        begin(rules, plain)
    assert caught.value.code == "not_isolated"
    clock.advance(LEASE_MS + 1)
    with pytest.raises(LeaseLost):
        begin(rules, claim)


def test_a_group_may_begin_again_after_its_job_was_given_back(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    first, second = isolated(rules), isolated(rules)
    begin(rules, first)
    rules.return_jobs("q", node="w", seqs=first.seqs)
    begin(rules, second)
    assert past(rules) == (1, 0, 0), "a begun job that is given back was no try"


# The end of a process


def test_a_process_that_ended_loses_what_it_had_begun_and_gives_back_the_rest(rules: Rules) -> None:
    make_queue(rules, jobs=5, max_deliveries=1)
    isolated(rules, max_count=2)
    isolated(rules, "v")
    isolated(rules)
    rules.claim("q", node="w")
    assert rules.end_node("q", node="w", seqs=[2, 4, 5, 77], exit_code=-9) == EndedNode("q", 2, 1)
    assert [past(rules, seq) for seq in (1, 2, 4)] == [(1, 0, 0), (1, 0, 1), (1, 0, 1)]
    assert [rules.job("q", seq).state for seq in (3, 5)] == ["in_flight", "in_flight"], "another's, and a plain lease"
    (delivery,) = rules.job("q", 2).history
    assert (delivery.end, delivery.node, delivery.reason) == ("lost", "w", "exit code -9")
    assert [delivery.end for delivery in rules.job("q", 1).history] == ["returned"]
    assert rules.end_node("q", node="w", seqs=[2]) == EndedNode("q", 0, 0)


def test_a_process_that_ended_and_had_begun_a_suspect_costs_it_a_try(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    claim = isolated(rules, max_count=2)
    begin(rules, claim)
    assert rules.end_node("q", node="w", seqs=[1, 2]) == EndedNode("q", 2, 0)
    assert [past(rules, seq) for seq in (1, 2)] == [(1, 1, 1), (1, 0, 1)]


def test_the_leases_of_a_node_are_found_after_their_pages_were_packed_and_dropped(rules: Rules) -> None:
    """Three pages of leases: one stays whole, one is left with a single job, one goes."""
    make_queue(rules, jobs=1_000)
    for number in range(700):
        isolated(rules, f"n{number % 5}", lease_ms=3_600_000)
    rules.ack("q", node="n0", seqs=[seq for seq in range(1, 701) if seq % 5 == 1 and seq != 301])
    for node in ("n1", "n2", "n3", "n4"):
        seqs = [seq for seq in range(1, 513) if (seq - 1) % 5 == int(node[1])]
        rules.ack("q", node=node, seqs=seqs)
    leases = rules.state.topics["q"].queue.leases  # type: ignore[union-attr]
    assert [len(leases.isolated_of(f"n{number}")) for number in range(6)] == [1, 37, 38, 38, 38, 0]
    assert sorted(leases._isolated["n0"]) == [1, 2], "of the last page it is not known"
    assert rules.end_node("q", node="n0", seqs=[301]) == EndedNode("q", 1, 0)
    assert (leases.isolated_of("n0"), sorted(leases.pages)) == ([], [2])
    rules.end_node("q", node="n1")
    for node in ("n2", "n3", "n4"):
        rules.end_node("q", node=node)
    assert (leases._isolated, leases.pages) == ({}, {})


# Returned


def test_a_returned_job_was_not_tried_and_can_be_claimed_at_once(rules: Rules) -> None:
    make_queue(rules, jobs=2, max_deliveries=1)
    for _ in range(3):
        claim = rules.claim("q", node="w", max_count=2)
        reply = rules.return_jobs("q", node="w", seqs=[*claim.seqs, 9], reason="drained")
        assert (reply.count, reply.skipped, reply.ready) == (2, [9], 2)
    assert past(rules) == (3, 0, 0)
    assert [(each.end, each.reason) for each in rules.job("q", 1).history] == [("returned", "drained")] * 3
    assert numbers(rules)["suspects"] == 0


def test_a_returned_job_may_wait(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    claim = isolated(rules)
    assert rules.return_jobs("q", node="w", lease_id=claim.lease_id, delay_ms=500).ready == 0
    clock.advance(499)
    assert isolated(rules).seqs == []
    clock.advance(1)
    assert isolated(rules).seqs == [1]


def test_a_returned_suspect_stays_one(rules: Rules) -> None:
    make_queue(rules, jobs=1)
    rules.lose("q", isolated(rules).lease)
    rules.return_jobs("q", node="s", seqs=suspects(rules).seqs)
    assert (past(rules), numbers(rules)["suspects"]) == ((2, 0, 1), 1)


def test_a_job_of_another_cannot_be_returned(rules: Rules) -> None:
    make_queue(rules, jobs=1)
    isolated(rules)
    assert rules.return_jobs("q", node="v", seqs=[1]).count == 0
    with pytest.raises(LeaseLost):
        rules.return_jobs("q", node="v", seqs=[1], strict=True)


# Verdicts, parking, redrives


def test_a_nack_clears_the_losses_and_an_ack_forgets_them(rules: Rules) -> None:
    make_queue(rules, jobs=2)
    rules.lose("q", isolated(rules, max_count=2).lease)
    claim = suspects(rules, max_count=2)
    rules.nack("q", node="s", seqs=[1])
    rules.ack("q", node="s", seqs=[2])
    assert past(rules) == (2, 1, 0)
    assert numbers(rules)["suspects"] == 0
    assert claim.seqs == [1, 2]
    assert isolated(rules).seqs == [1], "it is in line with the others"
    assert list(rules.state.topics["q"].queue.suspects.pasts) == [1]  # type: ignore[union-attr]


def test_a_job_that_was_lost_too_often_and_never_begun_is_parked(clock: ManualClock) -> None:
    rules = Rules(clock, replace(Settings(), losses_max=3))
    make_queue(rules, jobs=1, dead_letter="dead")
    rules.lose("q", isolated(rules).lease)
    for _ in range(2):
        rules.lose("q", suspects(rules).lease)
    assert suspects(rules).seqs == []
    row = rules.job("q", 1)
    assert (row.state, row.reason) == ("parked", "its worker was lost 3 times before it began this job")
    assert "dead" not in rules.state.topics, "nobody knows whether it is the job's fault: it stays where it is"
    rules.redrive("q")
    assert suspects(rules).seqs == [1], "and gets another chance"


def test_a_job_that_was_begun_once_is_not_parked_for_its_losses(clock: ManualClock) -> None:
    rules = Rules(clock, replace(Settings(), losses_max=3))
    make_queue(rules, jobs=1)
    lose_begun(rules, clock)
    for _ in range(5):
        rules.lose("q", suspects(rules).lease)
    assert suspects(rules).seqs == [1]


def test_a_redrive_in_place_keeps_a_suspect_a_suspect(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dlq_strategy="block")
    lose_begun(rules, clock)
    assert suspects(rules).seqs == []
    rules.redrive("q")
    assert past(rules) == (0, 0, 1)
    assert (isolated(rules).seqs, suspects(rules).seqs) == ([], [1])


@pytest.mark.parametrize("reset", [True, False])
def test_a_redrive_of_a_dead_letter_keeps_a_suspect_a_suspect(rules: Rules, clock: ManualClock, reset: bool) -> None:
    make_queue(rules, jobs=1, max_deliveries=2, dead_letter="dead")
    lose_begun(rules, clock, 2)
    assert suspects(rules).seqs == []
    rules.produce("q", [b"fresh"] * 2)
    rules.patch_topic("q", {"max_deliveries": 9})
    rules.redrive("dead", reset_deliveries=reset)
    assert past(rules, 4) == ((0, 0, 2) if reset else (2, 2, 2))
    assert isolated(rules, max_count=9).seqs == [2, 3], "it lies ahead of the cursor, and is not fresh"
    assert suspects(rules, max_count=9).seqs == [4]
    rules.lose("q", rules.state.next_lease - 1)
    rules.produce("q", [b"later"])
    assert isolated(rules).seqs == [5]
    assert past(rules, 4) == ((1, 0, 3) if reset else (3, 2, 3))


def test_a_suspect_ahead_of_the_cursor_is_taken_before_what_is_fresh_and_once(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead")
    lose_begun(rules, clock)
    assert suspects(rules).seqs == []
    rules.produce("q", [b"fresh"] * 2)
    rules.redrive("dead")
    assert [row.seq for row in rules.jobs("q", state="ready").items] == [2, 3, 4]
    rules.patch_topic("q", {"max_deliveries": 5})
    claim = suspects(rules)
    assert claim.seqs == [4]
    rules.produce("q", [b"later"])
    assert isolated(rules, max_count=9).seqs == [2, 3, 5]
    rules.nack("q", node="s", seqs=[4])
    assert isolated(rules, max_count=9).seqs == [4]


def test_a_rejected_suspect_ahead_of_the_cursor_is_fresh_again(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead")
    lose_begun(rules, clock)
    suspects(rules)
    rules.produce("q", [b"fresh"] * 2)
    rules.redrive("dead")
    rules.patch_topic("q", {"max_deliveries": 5})
    rules.nack("q", node="s", seqs=suspects(rules).seqs)
    assert isolated(rules, max_count=9).seqs == [2, 3, 4]
    assert past(rules, 4) == (2, 2, 0)


def test_the_back_off_of_a_nack_counts_tries(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, retry_backoff={"min_ms": 100, "max_ms": 60_000, "factor": 2.0, "jitter": False})
    for _ in range(5):
        rules.return_jobs("q", node="w", seqs=isolated(rules).seqs)
    rules.nack("q", node="w", seqs=isolated(rules).seqs)
    assert rules.job("q", 1).deliver_at == clock.wall_ms() + 100


def test_a_job_that_is_rejected_in_place_is_no_suspect_after_its_redrive(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, dlq_strategy="block")
    lose_begun(rules, clock)
    rules.nack("q", node="s", seqs=suspects(rules).seqs, dead=True)
    rules.redrive("q", reset_deliveries=False)
    assert past(rules) == (2, 2, 0)
    assert isolated(rules).seqs == [1]


def test_a_letter_that_keeps_its_deliveries_comes_back_with_its_tries_alone(rules: Rules) -> None:
    make_queue(rules, jobs=1, max_deliveries=2, dead_letter="dead")
    for _ in range(5):
        rules.return_jobs("q", node="w", seqs=isolated(rules).seqs)
    rules.nack("q", node="w", seqs=isolated(rules).seqs, dead=True)
    rules.redrive("dead", reset_deliveries=False)
    assert past(rules, 2) == (1, 1, 0), "what was no try before is none here"
    assert isolated(rules).seqs == [2], "it has one left"


def test_a_worn_letter_gets_another_chance(clock: ManualClock) -> None:
    rules = Rules(clock, replace(Settings(), losses_max=3))
    make_queue(rules, jobs=1, max_deliveries=4, dead_letter="dead")
    lose_begun(rules, clock, 4)
    assert suspects(rules).seqs == []
    rules.redrive("dead")
    assert suspects(rules).lost == {2: 2}


def test_a_job_that_is_deleted_leaves_no_past(rules: Rules) -> None:
    make_queue(rules, jobs=3)
    rules.lose("q", isolated(rules, max_count=3).lease)
    rules.delete_records("q", seqs=[2])
    rules.delete_records("q", before_seq=2)
    line = rules.state.topics["q"].queue.suspects  # type: ignore[union-attr]
    assert (list(line.pasts), list(line.ready)) == ([3], [3])


# With the feature off


def test_without_the_feature_isolate_is_ignored_and_the_rest_refused(clock: ManualClock) -> None:
    rules = Rules(clock, features=frozenset())
    make_queue(rules, jobs=2, max_deliveries=1, dlq_strategy="block")
    claim = isolated(rules)
    assert suspects(rules).seqs == []
    before = snapshot(rules)
    for refused in (
        lambda: rules.return_jobs("q", node="w", seqs=[1]),
        lambda: begin(rules, claim),
        lambda: rules.end_node("q", node="w"),
    ):
        with pytest.raises(Conflict) as caught:
            refused()
        assert caught.value.code == "feature_off"
        assert caught.value.detail["feature"] == "returns"
    assert snapshot(rules) == before
    clock.advance(LEASE_MS + 1)
    assert past(rules) == (1, 1, 0)
    assert (isolated(rules).seqs, rules.job("q", 1).state) == ([2], "parked")
    rules.release("q", rules.state.next_lease - 1)
    assert past(rules, 2) == (1, 1, 0)
