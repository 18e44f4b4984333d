"""Dead letters and their way back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure import Invalid, NotFound, Overloaded, Record, Settings
from tenure.contract.records import Stored
from tenure.contract.replies import JobRow
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas, seqs
from tests.kit.rules import Rules, fail_by_expiry, make_queue, numbers, read, snapshot


def meta(record: Stored) -> dict[str, Any]:
    assert record.meta is not None
    found: dict[str, Any] = json.loads(record.meta)
    return found


def kill_job(rules: Rules, seq: int, *, reason: str | None = None, topic: str = "q") -> None:
    """Claim what is there and declare one job dead."""
    rules.claim(topic, node="k", max_count=1000)
    assert (rules.nack(topic, node="k", seqs=[seq], dead=True, reason=reason)).count == 1
    rules.nack(topic, node="k", seqs=[job.seq for job in rules.jobs(topic, state="in_flight").items] or [0])


@pytest.mark.parametrize("how", ["nack", "expiry", "both"])
def test_nacks_and_expiries_count_alike(rules: Rules, clock: ManualClock, how: str) -> None:
    make_queue(rules, jobs=1, max_deliveries=2, dead_letter="dead")
    for attempt in range(2):
        rules.claim("q", node="w", lease_ms=1000)
        if how == "nack" or (how == "both" and attempt):
            rules.nack("q", node="w", seqs=[1])
        else:
            clock.advance(1001)
    assert (rules.claim("q", node="w")).seqs == []
    assert len(read(rules, "dead")) == 1


def test_without_a_limit_a_job_is_redelivered_for_ever(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, dead_letter="dead")
    claim = fail_by_expiry(rules, clock, 20)
    assert claim is not None
    assert claim.deliveries(1) == 20


def test_skip_without_a_dead_letter_topic_redelivers_for_ever(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=2)
    claim = fail_by_expiry(rules, clock, 9)
    assert claim is not None
    assert (claim.seqs, claim.deliveries(1)) == ([1], 9)


def test_the_claim_that_buries_the_dead_still_gets_the_living(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=2, max_deliveries=1, dead_letter="dead")
    fail_by_expiry(rules, clock)
    rules.produce("q", [b"3"])
    assert (rules.claim("q", node="w", max_count=9)).seqs == [3]


def test_one_pass_buries_at_most_a_thousand(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=2500, max_deliveries=1, dead_letter="dead")
    for _ in range(3):
        rules.claim("q", node="w", max_count=1000, lease_ms=1000)
    clock.advance(1001)
    counts = []
    for _ in range(3):
        assert (rules.claim("q", node="w", max_count=9)).jobs == []
        counts.append(rules.topic("dead").count)
    assert counts == [1000, 2000, 2500]


def test_raising_the_limit_brings_a_job_back_before_it_is_buried(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead")
    fail_by_expiry(rules, clock)
    rules.put_topic("q", {"max_deliveries": 2, "dead_letter": "dead"})
    claim = rules.claim("q", node="w")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 2)


# Where to


def test_skip_moves_the_job_with_all_that_is_its_own(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, max_deliveries=2, dead_letter="dead")
    job = Record(data=b'{"a": 1e400}', tag="t", node="n", meta=b'{"k": [1e400, "\xc3\xa9"]}')
    rules.produce("q", [b"first", job])
    fail_by_expiry(rules, clock, 2)
    rules.claim("q", node="w", max_count=9)
    bare, full = read(rules, "dead")
    assert (full.data, full.tag, full.node) == (job.data, "t", "n")
    assert full.meta is not None
    assert full.meta.startswith(b'{"k":[1e400, "\xc3\xa9"]'), "what was in it is kept as it was written"
    assert meta(bare) == {
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
        "$dead_letter_reason": "max_deliveries",
    }
    assert meta(full)["$dead_letter_src_seq"] == 2
    assert (rules.topic("q").count, rules.topic("q").bytes, numbers(rules)["parked"]) == (0, 0, 0)


def test_a_job_shows_its_last_reason_also_after_a_delivery_that_ran_out(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1)
    rules.claim("q", node="w")
    rules.nack("q", node="w", seqs=[1], reason="boom")
    fail_by_expiry(rules, clock)
    assert rules.job("q", 1).reason == "boom"


def test_block_parks_the_job_where_it_is(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead", dlq_strategy="block")
    fail_by_expiry(rules, clock)
    assert (rules.claim("q", node="w")).seqs == []
    counted = numbers(rules)
    assert (counted["parked"], counted["ready"], rules.topic("q").count) == (1, 0, 1)
    assert rules.topics().items == ["q"]
    clock.advance(10**9)
    assert (rules.claim("q", node="w")).seqs == []


def test_block_and_dlq_does_both(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead", dlq_strategy="block_and_dlq")
    fail_by_expiry(rules, clock)
    rules.claim("q", node="w")
    assert (numbers(rules)["parked"], datas(read(rules, "dead"))) == (1, [b"1"])


def test_a_full_dead_letter_topic_parks_the_job(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("dead", {"cap_records": 1, "discard": "reject"})
    make_queue(rules, jobs=2, max_deliveries=1, dead_letter="dead")
    rules.claim("q", node="w", lease_ms=1000)
    clock.advance(1001)
    rules.claim("q", node="w", lease_ms=1000)
    assert (rules.topic("dead").count, numbers(rules)["parked"]) == (1, 0)
    clock.advance(1001)
    assert (rules.claim("q", node="w")).seqs == []
    assert (rules.topic("dead").count, numbers(rules)["parked"], rules.topic("q").count) == (1, 1, 1)
    (parked,) = rules.jobs("q", state="parked").items
    assert str(parked.reason).startswith("max_deliveries; ")


# On demand


def test_a_nack_can_declare_a_job_dead_at_once(rules: Rules) -> None:
    make_queue(rules, jobs=3, dead_letter="dead")
    rules.claim("q", node="w", max_count=2)
    done = rules.nack("q", node="w", seqs=[2, 3], dead=True, reason="poison")
    assert (done.count, done.skipped, done.ready, done.in_flight) == (1, [3], 1, 1)
    (letter,) = read(rules, "dead")
    assert (letter.data, meta(letter)["$dead_letter_reason"]) == (b"2", "poison")
    assert meta(letter)["$dead_letter_deliveries"] == 1


def test_a_job_declared_dead_is_parked_where_the_strategy_says_so(rules: Rules) -> None:
    make_queue(rules, jobs=1, dlq_strategy="block")
    kill_job(rules, 1, reason="poison")
    assert rules.jobs("q", state="parked").items == [JobRow(1, "parked", 1, reason="poison")]


def test_metas_of_any_shape_survive_the_stamping(rules: Rules) -> None:
    make_queue(rules, dead_letter="dead")
    odd = [b'{"$dead_letter_from": 7, "x": 1}', b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", b'{"n":1e999}']
    rules.plant("q", odd)
    rules.claim("q", node="w", max_count=9)
    assert (rules.nack("q", node="w", seqs=[1, 2, 3], dead=True)).count == 3
    letters = read(rules, "dead")
    assert meta(letters[0])["$dead_letter_from"] == "q"
    assert (rules.redrive("dead")).redriven == 3


# Redrive


def test_a_redrive_of_a_dead_letter_topic_moves_jobs_back_where_they_came_from(
    rules: Rules, clock: ManualClock
) -> None:
    make_queue(rules, "a", max_deliveries=1, dead_letter="dead")
    make_queue(rules, "b", max_deliveries=1, dead_letter="dead")
    rules.produce("a", [Record(data=b"a1", tag="t", node="n", meta=b'{"k":1}')])
    rules.produce("b", [b"b1"])
    for queue in "ab":
        fail_by_expiry(rules, clock, topic=queue)
        rules.claim(queue, node="w")
    back = rules.redrive("dead")
    assert (back.topic, back.redriven, back.seqs, back.to) == ("dead", 2, [1, 2], "a,b")
    assert rules.topic("dead").count == 0
    claim = rules.claim("a", node="w")
    (job,) = claim.jobs
    assert (job.data, job.tag, job.node, job.seq) == (b"a1", "t", "n", 2)
    assert (meta(job)["k"], meta(job)["$dead_letter_from"]) == (1, "a"), "provenance is kept"
    assert claim.deliveries(2) == 1, "its count starts again"
    assert datas((rules.claim("b", node="w")).jobs) == [b"b1"]


def test_a_job_that_keeps_its_count_is_buried_by_the_next_claim(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=1, max_deliveries=2, dead_letter="dead")
    fail_by_expiry(rules, clock, 2)
    rules.claim("q", node="w")
    rules.redrive("dead", reset_deliveries=False)
    assert (rules.claim("q", node="w")).seqs == [], "it was delivered as often as it may be"
    assert rules.topic("dead").count == 1
    rules.put_topic("q", {"max_deliveries": 3, "dead_letter": "dead"})
    rules.redrive("dead", reset_deliveries=False)
    claim = rules.claim("q", node="w")
    assert (len(claim.jobs), claim.deliveries(claim.seqs[0])) == (1, 3)


def test_jobs_that_keep_their_count_are_buried_among_others_and_none_is_passed_over(rules: Rules) -> None:
    make_queue(rules, max_deliveries=2, dead_letter="dead")
    spent, fresh = b'{"$dead_letter_from":"q","$dead_letter_deliveries":2}', b'{"$dead_letter_from":"q"}'
    metas = [spent, fresh, spent, spent, fresh, fresh, spent, fresh]
    rules.plant("dead", metas)
    rules.redrive("dead", reset_deliveries=False)
    claimed = []
    for _ in range(9):
        claimed += datas((rules.claim("q", node="w", max_count=3)).jobs)
    assert claimed == [b"2", b"5", b"6", b"8"]
    assert sorted(datas(read(rules, "dead"))) == [b"1", b"3", b"4", b"7"]


def test_a_redrive_of_a_queue_un_parks(rules: Rules) -> None:
    make_queue(rules, jobs=2, dlq_strategy="block")
    kill_job(rules, 1)
    back = rules.redrive("q")
    assert (back.topic, back.to, back.redriven, back.seqs) == ("q", "q", 1, [1])
    claim = rules.claim("q", node="w")
    assert (claim.seqs, claim.deliveries(1)) == ([1], 1)
    assert numbers(rules)["parked"] == 0


def test_an_un_parked_job_may_keep_its_count(rules: Rules) -> None:
    make_queue(rules, jobs=1, dlq_strategy="block", max_deliveries=1)
    kill_job(rules, 1)
    rules.redrive("q", reset_deliveries=False)
    assert (rules.claim("q", node="w")).seqs == []
    assert numbers(rules)["parked"] == 1


def park_and_copy(rules: Rules, *seqs: int, jobs: int = 3, **config: Any) -> None:
    """A queue whose jobs ``seqs`` are parked, each with a copy in ``dead``."""
    make_queue(rules, jobs=jobs, dead_letter="dead", dlq_strategy="block_and_dlq", **config)
    rules.claim("q", node="k", max_count=jobs)
    for seq in seqs:
        rules.nack("q", node="k", seqs=[seq], dead=True)
    rest = [job.seq for job in rules.jobs("q", state="in_flight").items]
    rules.nack("q", node="k", seqs=rest or [0])


def test_redriving_the_copy_of_a_parked_job_un_parks_it_and_adds_no_second_one(rules: Rules) -> None:
    park_and_copy(rules, 1, 3)
    back = rules.redrive("dead")
    assert (back.to, back.redriven, back.seqs) == ("q", 2, [1, 2])
    assert (rules.topic("q").count, rules.topic("dead").count, numbers(rules)["parked"]) == (3, 0, 0)
    claim = rules.claim("q", node="w", max_count=9)
    assert (claim.seqs, [claim.deliveries(seq) for seq in claim.seqs]) == ([1, 2, 3], [1, 2, 1])


def test_un_parking_a_job_removes_its_copy(rules: Rules) -> None:
    park_and_copy(rules, 1, 2, 3)
    assert (rules.redrive("q", seqs=[1, 3])).seqs == [1, 3]
    assert [meta(letter)["$dead_letter_src_seq"] for letter in read(rules, "dead")] == [2]
    assert (rules.redrive("dead")).redriven == 1
    assert (rules.claim("q", node="w", max_count=9)).seqs == [1, 2, 3]
    assert rules.topic("q").count == 3


def test_a_copy_that_outlived_its_parked_job_comes_back_as_a_new_one(rules: Rules) -> None:
    park_and_copy(rules, 1, jobs=1)
    rules.delete_records("q", seqs=[1])
    assert (rules.redrive("dead")).redriven == 1
    assert (rules.claim("q", node="w")).seqs == [2]


def test_a_copy_redriven_elsewhere_leaves_the_job_parked(rules: Rules) -> None:
    park_and_copy(rules, 1, jobs=1)
    make_queue(rules, "other")
    assert (rules.redrive("dead", to="other")).redriven == 1
    assert (numbers(rules)["parked"], rules.topic("other").count, rules.topic("dead").count) == (1, 1, 0)
    rules.redrive("q")
    assert (rules.claim("q", node="w")).seqs == [1]


def test_a_letter_that_names_a_parked_job_but_is_not_its_copy_un_parks_nothing(rules: Rules) -> None:
    park_and_copy(rules, 1, jobs=1)
    rules.plant("dead", [b'{"$dead_letter_from":"q","$dead_letter_src_seq":1}'])
    assert (rules.redrive("dead", seqs=[2])).redriven == 1
    assert (numbers(rules)["parked"], rules.topic("q").count) == (1, 2)


def test_un_parking_takes_a_copy_from_whoever_holds_it(rules: Rules) -> None:
    make_queue(rules, "dead")
    park_and_copy(rules, 1, jobs=1)
    assert (rules.claim("dead", node="operator")).seqs == [1]
    rules.redrive("q")
    assert (rules.topic("dead").count, (rules.ack("dead", node="operator", seqs=[1])).count) == (0, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 3, 4]),
        ({"match": "x"}, [1, 3]),
        ({"match": ["tag", "Glob", "x*"]}, [1, 2, 3]),
        ({"seqs": [4, 2, 99]}, [2, 4]),
        ({"reason_like": "time"}, [2, 3]),
        ({"limit": 2}, [1, 2]),
        ({"match": "x", "reason_like": "time", "limit": 1}, [3]),
        ({"match": "nothing"}, []),
    ],
)
@pytest.mark.parametrize("parked", [True, False])
def test_a_redrive_can_choose(rules: Rules, parked: bool, options: dict[str, Any], expected: list[int]) -> None:
    make_queue(rules, dead_letter="dead", dlq_strategy="block" if parked else "skip")
    rules.produce("q", [Record(data=b"%d" % n, tag=tag) for n, tag in enumerate(("x", "xy", "x", None), 1)])
    rules.claim("q", node="w", max_count=9)
    for seq, reason in ((1, "boom"), (2, "timeout"), (3, "out of time"), (4, "boom")):
        rules.nack("q", node="w", seqs=[seq], dead=True, reason=reason)
    back = rules.redrive("q" if parked else "dead", **options)
    assert (back.seqs, back.redriven) == (expected, len(expected))
    jobs = (rules.claim("q", node="w", max_count=9)).jobs
    assert datas(jobs) == [b"%d" % seq for seq in expected]


def test_a_redrive_can_go_elsewhere(rules: Rules) -> None:
    make_queue(rules, jobs=1, dead_letter="dead")
    make_queue(rules, "other")
    kill_job(rules, 1)
    back = rules.redrive("dead", to="other")
    assert (back.to, back.redriven) == ("other", 1)
    assert (rules.topic("q").count, datas(read(rules, "other"))) == (0, [b"1"])


def test_a_caller_redrives_only_to_where_it_may_write(rules: Rules) -> None:
    for queue in "ab":
        make_queue(rules, queue, jobs=1, dead_letter="dead")
        kill_job(rules, 1, topic=queue)
    assert (rules.redrive("dead", reaches=lambda topic: topic == "b")).seqs == [2]
    assert (rules.topic("a").count, rules.topic("b").count, rules.topic("dead").count) == (0, 1, 1)


def test_only_dead_letters_are_redriven(rules: Rules) -> None:
    make_queue(rules, jobs=1, dead_letter="dead")
    make_queue(rules, "other")
    kill_job(rules, 1)
    rules.produce("dead", [b"bare"])
    rules.plant("dead", [b'{"$dead_letter_from": 5}', b'{"k":1}', b'{"$dead_letter_from": null}'])
    assert (rules.redrive("dead", to="other")).seqs == [1]
    assert rules.topic("dead").count == 4


@pytest.mark.parametrize(
    "meta",
    [
        b'{"$dead_letter_from":"b"}',
        b'{"k":1,"$dead_letter_lost":3}',
        b'{"\\u0024dead_letter_from":"b"}',
        b'{"$dead\\u005fletter_from":"b","$dead_letter_from":null}',
        b'{"$dead_letter_":1}',
    ],
)
def test_only_the_broker_writes_where_a_letter_came_from(rules: Rules, meta: bytes) -> None:
    make_queue(rules, "b")
    before = snapshot(rules)
    with pytest.raises(Invalid) as error:
        rules.produce("dead", [b"fine", Record(data=b"forged", meta=meta)])
    assert error.value.detail["field"] == "meta"
    assert "leave it out" in error.value.message
    assert snapshot(rules) == before
    rules.produce("dead", [Record(data=b"1", meta=b'{"dead_letter_from":"b","x":"$dead_letter_from"}')])
    assert (rules.redrive("dead").redriven, rules.topic("b").count) == (0, 0)


@pytest.mark.parametrize("parked", [True, False])
def test_a_dry_run_says_what_would_go_where_and_moves_nothing(rules: Rules, parked: bool) -> None:
    strategy = {"dlq_strategy": "block"} if parked else {"dead_letter": "dead"}
    for queue, jobs in (("a", 1), ("b", 2)):
        make_queue(rules, queue, jobs=jobs, **strategy)
        for seq in range(1, jobs + 1):
            kill_job(rules, seq, topic=queue, reason=f"{queue}{seq}")
    place = "b" if parked else "dead"
    before = snapshot(rules)
    would = rules.redrive(place, dry_run=True)
    expected = {"b": 2} if parked else {"a": 1, "b": 2}
    assert (would.redriven, would.destinations, len(would.seqs)) == (0, expected, sum(expected.values()))
    assert rules.redrive(place, dry_run=True, limit=1).seqs == [1]
    assert rules.redrive(place, dry_run=True, reason_like="b2").destinations == {"b": 1}
    assert snapshot(rules) == before
    done = rules.redrive(place)
    assert (done.redriven, done.seqs, done.destinations) == (len(would.seqs), would.seqs, expected)


def test_a_dry_run_names_no_queue_beyond_the_caller_and_counts_the_place_given(rules: Rules) -> None:
    for queue in "ab":
        make_queue(rules, queue, jobs=1, dead_letter="dead")
        kill_job(rules, 1, topic=queue)
    assert rules.redrive("dead", dry_run=True, reaches=lambda name: name == "a").destinations == {"a": 1}
    assert rules.redrive("dead", dry_run=True, to="a").destinations == {"a": 2}


@pytest.mark.parametrize("count", ["7", '"many"', "-1", "1e999", "[]", "null", "99999999999999999999"])
def test_a_forged_count_does_no_harm(rules: Rules, count: str) -> None:
    make_queue(rules)
    forged = f'{{"$dead_letter_from":"q","$dead_letter_deliveries":{count},"$dead_letter_reason":{count}}}'
    rules.plant("dead", [forged.encode()])
    assert (rules.redrive("dead", reset_deliveries=False)).redriven == 1
    claim = rules.claim("q", node="w")
    assert claim.deliveries(1) == (8 if count == "7" else 1)


def test_a_target_that_is_gone_is_named(rules: Rules) -> None:
    make_queue(rules, jobs=1, dead_letter="dead")
    kill_job(rules, 1)
    rules.delete_topic("q")
    before = snapshot(rules)
    with pytest.raises(NotFound) as error:
        rules.redrive("dead")
    assert error.value.detail["topic"] == "q"
    with pytest.raises(NotFound):
        rules.redrive("dead", to="nowhere")
    with pytest.raises(Invalid):
        rules.redrive("dead", to="dead")
    assert snapshot(rules) == before


def test_a_redrive_stops_before_what_cannot_move_and_says_so_when_nothing_could(rules: Rules) -> None:
    make_queue(rules, jobs=3, dead_letter="dead")
    rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", seqs=[1, 2, 3], dead=True)
    rules.put_topic("q", {"cap_records": 2, "discard": "reject"})
    assert (rules.redrive("dead")).seqs == [1, 2]
    before = snapshot(rules)
    with pytest.raises(Overloaded) as error:
        rules.redrive("dead")
    assert error.value.code == "topic_full"
    assert snapshot(rules) == before


def test_a_dead_letter_that_somebody_holds_stays(rules: Rules) -> None:
    make_queue(rules, "dead")
    make_queue(rules, jobs=2, dead_letter="dead")
    rules.claim("q", node="w", max_count=2)
    rules.nack("q", node="w", seqs=[1, 2], dead=True)
    rules.claim("dead", node="operator")
    assert (rules.redrive("dead")).seqs == [2]


def test_a_redrive_of_an_absent_topic_is_not_found(rules: Rules) -> None:
    with pytest.raises(NotFound):
        rules.redrive("dead")


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_an_absent_dead_letter_topic_is_created_as_a_log_of_the_queue_s_class(
    rules: Rules, clock: ManualClock, durability: str
) -> None:
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead", durability=durability)
    fail_by_expiry(rules, clock)
    rules.claim("q", node="w")
    info = rules.topic("dead")
    assert (info.type, info.config.durability, info.head_seq) == ("log", durability, 1)


def test_a_redrive_without_a_limit_moves_a_thousand(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(claim_max=3))
    make_queue(rules, jobs=5, dead_letter="dead")
    for _ in range(2):
        rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", seqs=[1, 2, 3], dead=True)
    rules.nack("q", node="w", seqs=[4, 5], dead=True)
    assert (rules.redrive("dead")).redriven == 3, "as many as one claim may hold"
    assert seqs(read(rules, "dead")) == [4, 5]


@pytest.mark.parametrize("strategy", ["skip", "block", "block_and_dlq"])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_job_is_delivered_exactly_max_deliveries_times(
    rules: Rules, clock: ManualClock, strategy: str, limit: int
) -> None:
    make_queue(rules, jobs=2, max_deliveries=limit, dead_letter="dead", dlq_strategy=strategy)
    for deliveries in range(1, limit + 1):
        claim = rules.claim("q", node="w", max_count=9, lease_ms=1000)
        assert (claim.seqs, claim.deliveries(1)) == ([1, 2], deliveries)
        assert numbers(rules)["dead_lettered"] == 0
        clock.advance(1001)
    assert (rules.claim("q", node="w", max_count=9)).seqs == []
    assert numbers(rules)["dead_lettered"] == 2
