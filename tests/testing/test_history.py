"""The history checker must find every anomaly it is there for, and nothing in a history that is clean."""

from __future__ import annotations

from tenure.testing import History, check_history
from tenure.testing.history import Outcome


def produced(*ids: str) -> History:
    history = History()
    for id in ids:
        history.produce([id], "invoke")
        history.produce([id], "ok")
    return history


def deliver(
    history: History,
    seq: int,
    id: str,
    *,
    count: int = 1,
    at: int = 100,
    lease_ms: int = 50,
    node: str = "n",
    tries: int = 0,
) -> str:
    """One delivery; its lease is named for its seq and its time."""
    lease, deadline = f"{seq}@{at}", at + lease_ms
    history.delivery("q", seq, id, lease=lease, node=node, deliveries=count, at=at, deadline=deadline, tries=tries)
    return lease


def finish(history: History, seq: int, id: str, *, count: int = 1, at: int = 100) -> None:
    lease = deliver(history, seq, id, count=count, at=at)
    history.ack("q", seq, lease=lease, outcome="ok", at=at + 10)


def found(history: History) -> set[str]:
    return set(check_history(history).anomalies)


# A clean history


def test_a_clean_history_passes():
    history = produced("a", "b", "c", "d")
    finish(history, 1, "a")
    deliver(history, 2, "b", at=100)
    finish(history, 2, "b", count=2, at=151)
    lease = deliver(history, 3, "c", at=110)
    history.extend("q", 3, lease=lease, outcome="ok", at=140, deadline=190)
    history.nack("q", 3, lease=lease, outcome="ok", at=170)
    deliver(history, 3, "c", count=2, at=171)
    history.dead_letters(["c"], at=300)
    history.remaining(["d"])
    report = check_history(history)
    assert report.ok
    assert str(report) == "4 acknowledged produces, 5 deliveries, 2 acks: no anomaly"


def test_an_empty_history_passes():
    assert check_history(History()).ok


# Lost


def test_lost_jobs_are_found_at_the_start_in_the_middle_and_at_the_end():
    history = produced(*"abcdefg")
    for seq, id in ((3, "c"), (5, "e")):
        finish(history, seq, id)
    report = check_history(history)
    assert (report.lost_prefix, report.lost_middle, report.lost_postfix) == (["a", "b"], ["d"], ["f", "g"])
    assert report.lost == ["a", "b", "d", "f", "g"]
    assert not report.ok


def test_where_everything_is_lost_all_of_it_is_reported():
    assert check_history(produced("a", "b")).lost == ["a", "b"]


def test_a_produce_of_unknown_outcome_may_be_lost_or_not():
    answers: list[Outcome] = ["invoke", "unknown"]
    for answer in answers:
        history = History()
        history.produce(["a"], answer)
        assert check_history(history).ok
        finish(history, 1, "a")
        assert check_history(history).ok


def test_a_job_that_was_deleted_on_request_is_not_lost():
    history = produced("a")
    history.removed(["a"])
    assert check_history(history).ok


def test_a_job_that_was_delivered_and_never_acked_must_be_somewhere_at_the_end():
    history = produced("a")
    lease = deliver(history, 1, "a")
    assert found(history) == {"vanished"}
    history.ack("q", 1, lease=lease, outcome="fail", at=400)  # a skipped ack settles nothing
    assert found(history) == {"vanished"}
    history.ack("q", 1, lease=lease, outcome="unknown", at=401)
    assert check_history(history).ok


# Unexpected


def test_a_delivery_that_nobody_sent_is_found():
    history = produced("a")
    finish(history, 1, "a")
    finish(history, 2, "ghost")
    assert found(history) == {"unexpected"}


def test_a_delivery_of_a_produce_that_failed_is_found():
    history = History()
    history.produce(["a"], "invoke")
    history.produce(["a"], "fail")
    finish(history, 1, "a")
    assert found(history) == {"unexpected"}


def test_a_failed_produce_that_is_tried_again_is_expected():
    history = History()
    answers: list[Outcome] = ["invoke", "fail", "invoke", "ok"]
    for answer in answers:
        history.produce(["a"], answer)
    finish(history, 1, "a")
    assert check_history(history).ok


def test_a_dead_letter_and_a_leftover_that_nobody_sent_are_found():
    for note in (History.dead_letters, History.remaining):
        history = History()
        note(history, ["ghost"])
        assert found(history) == {"unexpected"}


def test_one_seq_with_two_payloads_is_found():
    history = produced("a", "b")
    deliver(history, 1, "a", at=100)
    deliver(history, 1, "b", count=2, at=200)
    history.remaining(["a", "b"])
    assert found(history) == {"unexpected"}


# Duplicated


def test_two_deliveries_with_one_count_are_found():
    history = produced("a")
    deliver(history, 1, "a", at=100)
    finish(history, 1, "a", at=200)
    assert found(history) == {"duplicated without redelivery"}


def test_a_count_that_falls_is_found():
    history = produced("a")
    deliver(history, 1, "a", count=3, at=100)
    deliver(history, 1, "a", count=2, at=200)
    history.remaining(["a"])
    assert found(history) == {"duplicated without redelivery"}


def test_the_answer_to_a_repeated_claim_is_no_duplicate():
    history = produced("a")
    deliver(history, 1, "a", at=100)
    finish(history, 1, "a", at=100)
    assert check_history(history).ok


def test_one_lease_answered_with_two_counts_is_found():
    history = produced("a")
    deliver(history, 1, "a", at=100)
    finish(history, 1, "a", count=2, at=100)
    assert found(history) == {"duplicated without redelivery"}


def test_one_payload_under_two_seqs_is_found_unless_it_was_redriven():
    history = produced("a")
    finish(history, 1, "a", at=100)
    finish(history, 2, "a", at=200)
    assert found(history) == {"duplicated without redelivery"}
    history.redriven(["a"])
    assert check_history(history).ok


def test_counts_may_start_again_after_a_power_loss_but_not_before():
    history = produced("a")
    deliver(history, 1, "a", at=100)
    history.power_loss(at=120)
    finish(history, 1, "a", at=130)
    assert check_history(history).ok
    history = produced("a")
    deliver(history, 1, "a", at=100)
    history.power_loss(at=90)
    finish(history, 1, "a", at=130)
    assert found(history) == {"duplicated without redelivery", "overlapping leases"}


# Undone acks


def test_an_acknowledged_ack_that_is_undone_is_found():
    history = produced("a")
    finish(history, 1, "a", at=100)
    deliver(history, 1, "a", count=2, at=200)
    assert found(history) == {"undone ack"}


def test_an_undone_ack_is_found_after_a_power_loss_too():
    history = produced("a")
    finish(history, 1, "a", at=100)
    history.power_loss(at=150)
    deliver(history, 1, "a", count=1, at=200)
    assert found(history) == {"undone ack"}


def test_an_ack_of_unknown_outcome_may_be_undone():
    history = produced("a")
    lease = deliver(history, 1, "a", at=100)
    history.ack("q", 1, lease=lease, outcome="unknown", at=110)
    finish(history, 1, "a", count=2, at=200)
    assert check_history(history).ok


# Overlapping leases


def test_two_live_leases_on_one_job_are_found():
    history = produced("a")
    deliver(history, 1, "a", at=100, lease_ms=50)
    finish(history, 1, "a", count=2, at=150)  # the deadline itself still belongs to the first
    assert found(history) == {"overlapping leases"}


def test_a_lease_that_was_given_up_does_not_overlap():
    outcomes: list[Outcome] = ["ok", "unknown"]
    for outcome in outcomes:
        history = produced("a")
        lease = deliver(history, 1, "a", at=100)
        history.nack("q", 1, lease=lease, outcome=outcome, at=120)
        finish(history, 1, "a", count=2, at=121)
        assert check_history(history).ok
    history = produced("a")
    lease = deliver(history, 1, "a", at=100)
    history.release("q", 1, lease=lease, at=120)
    finish(history, 1, "a", count=2, at=121)
    assert check_history(history).ok


def test_a_nack_that_was_skipped_or_came_later_excuses_nothing():
    nacks: list[tuple[Outcome, int]] = [("fail", 120), ("ok", 140)]
    for outcome, at in nacks:
        history = produced("a")
        lease = deliver(history, 1, "a", at=100)
        history.nack("q", 1, lease=lease, outcome=outcome, at=at)
        finish(history, 1, "a", count=2, at=130)
        assert found(history) == {"overlapping leases"}


def test_an_extended_lease_overlaps_until_its_new_deadline():
    history = produced("a")
    lease = deliver(history, 1, "a", at=100, lease_ms=50)
    history.extend("q", 1, lease=lease, outcome="ok", at=140, deadline=300)
    finish(history, 1, "a", count=2, at=250)
    assert found(history) == {"overlapping leases"}


def test_an_extend_of_unknown_outcome_counts_both_ways():
    history = produced("a")
    lease = deliver(history, 1, "a", at=100, lease_ms=50)
    history.extend("q", 1, lease=lease, outcome="unknown", at=140, deadline=300)
    finish(history, 1, "a", count=2, at=250)
    assert check_history(history).ok
    history = produced("a")
    lease = deliver(history, 1, "a", at=100, lease_ms=100)
    history.extend("q", 1, lease=lease, outcome="unknown", at=140, deadline=160)
    finish(history, 1, "a", count=2, at=170)
    assert check_history(history).ok


# What is there at the end


def test_an_acked_job_that_is_there_at_the_end_is_found():
    for note in (History.dead_letters, History.remaining):
        history = produced("a")
        finish(history, 1, "a")
        note(history, ["a"])
        assert found(history) == {"undone ack"}


# Answers of a produce


def answered(
    history: History, *answers: tuple[list[str], list[int]], by: str = "p", outcome: Outcome = "ok"
) -> History:
    for ids, seqs in answers:
        history.produce(ids, "invoke", topic="q", by=by)
        history.produce(ids, outcome, topic="q", by=by, seqs=seqs)
    return history


def test_seqs_of_one_producer_rise_and_those_of_two_may_cross():
    history = answered(History(), (["a", "b"], [1, 2]), (["c"], [5]))
    answered(history, (["d"], [3]), by="other")
    history.remaining("abcd")
    assert check_history(history).ok
    answered(history, (["e"], [4]))
    history.remaining("e")
    assert found(history) == {"out of order"}


def test_seqs_that_fall_within_one_answer_or_are_too_few_are_found():
    for seqs in ([2, 1], [1]):
        history = answered(History(), (["a", "b"], seqs))
        history.remaining("ab")
        assert found(history) == {"out of order"}


def test_a_repeated_call_is_answered_with_its_first_seqs():
    history = answered(History(), (["a"], [1]), (["b"], [2]), (["a"], [1]))
    history.remaining("ab")
    assert check_history(history).ok


def test_a_repeated_call_that_appends_again_is_found():
    history = answered(History(), (["a"], [1]), (["a"], [2]))
    history.remaining("a")
    assert found(history) == {"duplicated without redelivery"}


def test_a_delivery_under_another_seq_than_was_answered_is_found():
    history = answered(History(), (["a"], [1]))
    finish(history, 2, "a")
    assert found(history) == {"duplicated without redelivery"}


def test_one_seq_answered_to_two_producers_is_found():
    history = answered(answered(History(), (["a"], [1])), (["b"], [1]), by="other")
    history.remaining("ab")
    assert found(history) == {"unexpected"}


def test_half_a_call_of_unknown_outcome_is_found_and_all_or_nothing_of_it_is_not():
    outcomes: list[Outcome] = ["invoke", "unknown"]
    for outcome in outcomes:
        history = answered(History(), (["a", "b"], []), outcome=outcome)
        assert check_history(history).ok
        finish(history, 1, "a")
        assert found(history) == {"torn call"}
        finish(history, 2, "b")
        assert check_history(history).ok


# Watches


def test_a_watch_that_skips_or_repeats_a_record_is_found():
    for seqs, ids in (([1, 3], "ac"), ([1, 1, 2, 3], "aabc")):
        history = answered(History(), (["a", "b", "c"], [1, 2, 3]))
        history.watched("q", seqs, ids, by="w")
        history.remaining("abc")
        assert found(history) == {"out of order"}


def test_a_watch_in_parts_is_one_and_what_it_saw_is_not_lost():
    history = answered(History(), (["a", "b", "c"], [1, 2, 3]))
    history.watched("q", [1, 2], "ab", by="w")
    assert check_history(history).lost == ["c"]
    history.watched("q", [3], "c", by="w")
    assert check_history(history).ok


def test_a_record_that_a_watch_made_up_is_found():
    history = History()
    history.watched("q", [1], ["ghost"], by="w")
    assert found(history) == {"unexpected"}


# Dead letters


def buried(*, tries: int, seen: int = 2, spared: int = 0) -> set[str]:
    history = answered(History(), (["a"], [1]))
    for count in range(1, seen + 1):
        deliver(history, 1, "a", count=count, at=100 * count, tries=max(count - spared, 1) if spared else 0)
    history.dead_letters(["a"], tries=[tries])
    return set(check_history(history, deliveries_max={"q": 2}).anomalies)


def test_a_dead_letter_comes_after_the_last_delivery_that_is_allowed_and_not_before():
    assert buried(tries=2) == set()
    assert buried(tries=2, seen=0) == set()  # the answers of both claims were lost
    assert buried(tries=0) == set()
    assert buried(tries=1, seen=1) == {"dead letter too early or too late"}


def test_a_delivery_above_the_limit_is_found():
    assert buried(tries=2, seen=3) == {"dead letter too early or too late"}


def test_deliveries_that_were_no_tries_do_not_count_against_the_limit():
    assert buried(tries=2, seen=3, spared=1) == set()
    assert buried(tries=2, seen=4, spared=1) == {"dead letter too early or too late"}


# The report and the rows


def test_the_report_names_what_it_found():
    history = produced("a", "b")
    deliver(history, 1, "a", at=100)
    finish(history, 1, "a", count=1, at=120)
    text = str(check_history(history))
    assert "lost postfix: 1\n    b" in text
    assert "duplicated without redelivery: 1" in text
    assert "overlapping leases: 1" in text
    assert "1@100" in text


def test_a_long_list_is_cut_short():
    text = str(check_history(produced(*(f"id-{i}" for i in range(20)))))
    assert "lost prefix: 20" in text
    assert "… and 12 more" in text


def test_rows_survive_a_file_but_for_a_last_line_cut_off_by_a_kill():
    history = produced("a", "b")
    finish(history, 1, "a")
    history.dead_letters(["b"])
    lines = history.to_lines()
    assert History.from_lines(lines).rows == history.rows
    assert History.from_lines(lines[:-5]).rows == history.rows[:-1]
    assert len(History.from_lines(lines, lines)) == 2 * len(history)
