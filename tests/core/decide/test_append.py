"""Appending: all or nothing, at most once where the caller names it, within the limits."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Conflict, Invalid, NotFound, Overloaded, Record, Settings
from tenure.core.state.client_marks import MARK_KEPT_MS
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas, seqs
from tests.kit.rules import Rules, make_queue, numbers, read, snapshot

DAY_MS = 24 * 3600 * 1000


# Seqs


def test_records_get_contiguous_seqs_from_one(rules: Rules) -> None:
    first = rules.produce("t", [b"1", b"2", b"3"])
    assert (first.topic, first.first_seq, first.last_seq, first.head_seq, first.count) == ("t", 1, 3, 3, 3)
    second = rules.produce("t", [Record(data=b"4"), b"5"])
    assert (list(second.seqs), second.head_seq) == ([4, 5], 5)
    assert datas(read(rules, "t")) == [b"1", b"2", b"3", b"4", b"5"]


def test_one_bad_record_keeps_all_of_them_out(rules: Rules) -> None:
    rules.produce("t", [b"1"])
    before = snapshot(rules)
    for bad in (Record(data=b"x", tag="y" * 257), Record(data=b"x", meta=b"[]"), Record(data=b"x", delay_ms=-1)):
        with pytest.raises(Invalid):
            rules.produce("t", [b"2", bad, b"3"])
    assert snapshot(rules) == before
    assert (rules.produce("t", [b"2"])).first_seq == 2, "no seq was lost on the way"


def test_a_record_comes_back_byte_for_byte(rules: Rules, clock: ManualClock) -> None:
    data, meta = b'{ "b":1e400,\n"a" : "\\ud800", "a":[] }', b' {"k": 1e400, "j":"\xc3\xa9"}'
    rules.produce("t", [Record(data=data, tag="é", node="n-1", meta=meta), Record(data=b"")])
    full, bare = read(rules, "t")
    assert (full.data, full.tag, full.node, full.meta, full.ts) == (data, "é", "n-1", meta, clock.wall_ms())
    assert (bare.data, bare.tag, bare.node, bare.meta) == (b"", None, None, None)


def test_the_node_of_the_call_is_for_records_without_their_own(rules: Rules) -> None:
    rules.produce("t", [b"1", Record(data=b"2"), Record(data=b"3", node="own")], node="call")
    assert [record.node for record in read(rules, "t")] == ["call", "call", "own"]


# Creating


def test_an_append_creates_its_topic_with_the_config_it_gives(rules: Rules) -> None:
    reply = rules.produce("q", [b"1"], config={"type": "queue", "lease_ms": 777})
    assert reply.created
    assert rules.topic("q").config.lease_ms == 777
    reply = rules.produce("q", [b"2"], config={"type": "log", "lease_ms": 999})
    assert not reply.created
    assert rules.topic("q").config.lease_ms == 777, "the config counts only for the write that creates"


def test_an_append_that_must_not_create_finds_nothing(rules: Rules) -> None:
    with pytest.raises(NotFound) as error:
        rules.produce("t", [b"1"], create=False)
    assert error.value.code == "topic_not_found"
    assert rules.topics().items == []
    rules.put_topic("t")
    assert (rules.produce("t", [b"1"], create=False)).first_seq == 1


def test_an_append_that_is_refused_creates_nothing(rules: Rules) -> None:
    before = snapshot(rules)
    for config in ({"type": "stack"}, {"cap_records": 1, "discard": "reject"}, {"type": "log"}):
        with pytest.raises((Invalid, Overloaded)):
            rules.produce("t", [b"1", Record(data=b"2", delay_ms=5)], config=config)
    assert snapshot(rules) == before


# Caps


@pytest.mark.parametrize(("cap", "records"), [({"cap_records": 3}, [b"1"]), ({"cap_bytes": 9}, [b"333"])])
def test_a_full_topic_that_rejects_takes_nothing(rules: Rules, cap: dict[str, int], records: list[bytes]) -> None:
    rules.put_topic("q", {"type": "queue", "discard": "reject", **cap})
    rules.produce("q", [b"333", b"333", b"333"])
    before = snapshot(rules)
    with pytest.raises(Overloaded) as error:
        rules.produce("q", records)
    assert (error.value.code, error.value.detail["limit"]) == ("topic_full", next(iter(cap)))
    assert snapshot(rules) == before
    rules.claim("q", node="w", auto_ack=True)
    rules.produce("q", records)


def test_a_batch_that_does_not_fit_as_a_whole_is_rejected_as_a_whole(rules: Rules) -> None:
    rules.put_topic("t", {"discard": "reject", "cap_records": 3})
    rules.produce("t", [b"1", b"2"])
    with pytest.raises(Overloaded):
        rules.produce("t", [b"3", b"4"])
    assert datas(read(rules, "t")) == [b"1", b"2"]


def test_a_full_topic_that_discards_lets_the_oldest_go(rules: Rules) -> None:
    rules.put_topic("t", {"cap_records": 3})
    rules.produce("t", [b"1", b"2", b"3", b"4", b"5"])
    assert seqs(read(rules, "t")) == [3, 4, 5]
    rules.put_topic("t", {"cap_bytes": 2})
    assert seqs(read(rules, "t")) == [4, 5]
    rules.produce("t", [b"much too large"])
    assert seqs(read(rules, "t")) == [6], "the newest record always stays"


def test_a_leased_job_is_never_discarded_and_counts_again_once_released(rules: Rules) -> None:
    make_queue(rules, cap_records=2)
    rules.produce("q", [b"1", b"2"])
    rules.claim("q", node="w")
    rules.produce("q", [b"3", b"4"])
    assert seqs(read(rules, "q")) == [1, 4]
    rules.nack("q", node="w", seqs=[1])
    rules.produce("q", [b"5"])
    assert seqs(read(rules, "q")) == [4, 5]


def test_a_parked_job_pins_its_record(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, cap_records=2, ttl_ms=1000, dlq_strategy="block")
    rules.produce("q", [b"1", b"2"])
    rules.claim("q", node="w")
    rules.nack("q", node="w", seqs=[1], dead=True)
    rules.produce("q", [b"3", b"4"])
    assert seqs(read(rules, "q")) == [1, 4]
    clock.advance(5000)
    assert seqs(read(rules, "q")) == [1]
    rules.redrive("q")
    assert seqs(read(rules, "q")) == [], "back in circulation it is as old as it is"


# Idempotency keys


def test_the_same_key_answers_the_first_seqs_and_appends_nothing(rules: Rules) -> None:
    first = rules.produce("t", [b"1", b"2"], idempotency_key="k")
    rules.produce("t", [b"3"])
    again = rules.produce("t", [b"1", b"2"], idempotency_key="k")
    assert (again.first_seq, again.count, again.head_seq, again.deduped) == (1, 2, 3, True)
    assert not first.deduped
    assert rules.topic("t").count == 3


def test_the_same_key_for_another_payload_is_a_conflict(rules: Rules) -> None:
    rules.produce("t", [b"12", b"3"], idempotency_key="k")
    before = snapshot(rules)
    others: list[list[bytes | Record]] = [[b"1", b"23"], [b"123"], [b"12"], [b"12", b"3", b""]]
    others.append([Record(data=b"12", tag="x"), b"3"])
    for records in others:
        with pytest.raises(Conflict) as error:
            rules.produce("t", records, idempotency_key="k")
        assert error.value.code == "idempotency_conflict"
    assert snapshot(rules) == before


def test_a_key_is_forgotten_after_its_window_and_another_topic_never_knew_it(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("t", {"idempotency_window_ms": 1000})
    rules.produce("t", [b"1"], idempotency_key="k")
    assert not (rules.produce("u", [b"1"], idempotency_key="k")).deduped
    clock.advance(1000)
    assert (rules.produce("t", [b"1"], idempotency_key="k")).deduped
    clock.advance(1)
    assert (rules.produce("t", [b"2"], idempotency_key="k")).first_seq == 2


def test_a_window_of_nothing_remembers_nothing_past_the_moment(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("t", {"idempotency_window_ms": 0})
    rules.produce("t", [b"1"], idempotency_key="k")
    clock.advance(1)
    assert not (rules.produce("t", [b"1"], idempotency_key="k")).deduped


# Client marks


def test_client_seqs_rise_and_an_old_one_is_a_conflict(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2"], client_id="c", client_seq=5)
    rules.produce("t", [b"3"], client_id="c", client_seq=7)
    before = snapshot(rules)
    with pytest.raises(Conflict) as error:
        rules.produce("t", [b"3"], client_id="c", client_seq=7)
    assert error.value.code == "idempotency_conflict"
    assert error.value.detail == {"last_client_seq": 7, "first_seq": 3, "last_seq": 3}
    with pytest.raises(Conflict) as error:
        rules.produce("t", [b"x"], client_id="c", client_seq=6)
    assert error.value.detail == {"last_client_seq": 7}, "what an older call got is not known any more"
    assert snapshot(rules) == before
    rules.produce("t", [b"4"], client_id="c", client_seq=8)


def test_marks_are_kept_by_topic_and_client(rules: Rules) -> None:
    rules.produce("t", [b"1"], client_id="c", client_seq=0)
    rules.produce("t", [b"1"], client_id="d", client_seq=0)
    rules.produce("u", [b"1"], client_id="c", client_seq=0)
    with pytest.raises(Conflict):
        rules.produce("u", [b"1"], client_id="c", client_seq=0)


def test_a_key_is_looked_up_before_the_mark(rules: Rules) -> None:
    rules.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=1)
    again = rules.produce("t", [b"1"], idempotency_key="k", client_id="c", client_seq=1)
    assert again.deduped
    with pytest.raises(Conflict):
        rules.produce("t", [b"1"], idempotency_key="other", client_id="c", client_seq=1)


def test_an_idle_mark_expires_after_seven_days(rules: Rules, clock: ManualClock) -> None:
    rules.produce("t", [b"1"], client_id="c", client_seq=9)
    clock.advance(7 * DAY_MS)
    with pytest.raises(Conflict):
        rules.produce("t", [b"1"], client_id="c", client_seq=9)
    clock.advance(1)
    rules.produce("t", [b"1"], client_id="c", client_seq=1)


@pytest.mark.parametrize("name", [{"client_id": "c"}, {"client_seq": 1}])
def test_client_id_and_client_seq_go_together(rules: Rules, name: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        rules.produce("t", [b"1"], **name)
    assert rules.topics().items == []


# Unique keys


def test_a_unique_key_answers_the_living_job(rules: Rules) -> None:
    make_queue(rules)
    rules.produce("q", [b"other"])
    job = Record(data=b"1", unique_key="u")
    assert (rules.produce("q", [job])).first_seq == 2
    again = rules.produce("q", [Record(data=b"something else", unique_key="u")])
    assert (again.first_seq, again.count, again.deduped) == (2, 1, True)
    rules.claim("q", node="w", max_count=2)
    assert (rules.produce("q", [job])).deduped, "in flight is alive"
    rules.ack("q", node="w", seqs=[2])
    assert (rules.produce("q", [job])).first_seq == 3


def test_a_unique_key_is_free_once_its_job_is_gone_whatever_way(rules: Rules) -> None:
    make_queue(rules, cap_records=1)
    job = Record(data=b"1", unique_key="u")
    rules.produce("q", [job])
    rules.delete_records("q", seqs=[1])
    assert (rules.produce("q", [job])).first_seq == 2
    rules.claim("q", node="w")
    rules.nack("q", node="w", seqs=[2], dead=True)
    assert (rules.produce("q", [job])).first_seq == 3
    rules.produce("q", [b"pushes it out"])
    assert (rules.produce("q", [job])).first_seq == 5


def test_a_unique_job_is_appended_alone_and_to_a_queue(rules: Rules) -> None:
    make_queue(rules)
    unique = Record(data=b"1", unique_key="u")
    for beside in (b"2", unique):
        with pytest.raises(Invalid):
            rules.produce("q", [unique, beside])
    with pytest.raises(Invalid):
        rules.produce("log", [unique])
    assert (rules.topic("q").count, rules.topics().items) == (0, ["q"])


# Delays


def test_a_delayed_job_is_invisible_to_claims_until_its_time(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules)
    rules.produce("q", [Record(data=b"1", delay_ms=100), b"2", Record(data=b"3", delay_ms=50)])
    assert (numbers(rules)["ready"], numbers(rules)["delayed"]) == (1, 2)
    assert seqs(read(rules, "q")) == [1, 2, 3], "readers see it all the same"
    assert (rules.claim("q", node="w", max_count=9)).seqs == [2]
    clock.advance(50)
    assert (rules.claim("q", node="w", max_count=9)).seqs == [3]
    clock.advance(49)
    assert (rules.claim("q", node="w", max_count=9)).seqs == []
    clock.advance(1)
    claim = rules.claim("q", node="w", max_count=9)
    assert (claim.seqs, claim.deliveries(1)) == ([1], 1)


def test_a_time_that_has_passed_delays_nothing(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules)
    rules.produce("q", [Record(data=b"1", deliver_at=clock.wall_ms()), Record(data=b"2", deliver_at=0)])
    assert (rules.claim("q", node="w", max_count=9)).seqs == [1, 2]


@pytest.mark.parametrize("record", [Record(data=b"", delay_ms=1), Record(data=b"", deliver_at=1)])
def test_a_log_delays_nothing(rules: Rules, record: Record) -> None:
    rules.put_topic("t")
    with pytest.raises(Invalid):
        rules.produce("t", [record])
    assert rules.topic("t").head_seq == 0


def test_the_number_of_keys_is_bounded_and_old_ones_make_room(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(idempotency_keys_max=2))
    rules.put_topic("t", {"idempotency_window_ms": 1000})
    rules.produce("t", [b"1"], idempotency_key="a")
    rules.produce("u", [b"1"], idempotency_key="b", config={"idempotency_window_ms": 9000})
    before = snapshot(rules)
    with pytest.raises(Overloaded) as error:
        rules.produce("u", [b"2"], idempotency_key="c")
    assert error.value.detail["limit"] == "idempotency_keys_max"
    assert snapshot(rules) == before
    assert (rules.produce("u", [b"1"], idempotency_key="b")).deduped, "a known key needs no room"
    clock.advance(1001)
    rules.produce("u", [b"2"], idempotency_key="c")
    assert (rules.produce("u", [b"1"], idempotency_key="b")).deduped


def test_no_window_is_longer_than_the_limit_and_the_answer_says_so(clock: ManualClock) -> None:
    settings = Settings(idempotency_window_ms_max=1_000, delay_ms_max=500)
    rules = Rules(clock, settings)
    forever = {"idempotency_window_ms": 2**64 - 1, "retry_backoff": {"max_ms": 2**64 - 1}}
    info, _ = rules.put_topic("t", forever)
    assert info.config.idempotency_window_ms == 1_000
    assert info.config.retry_backoff is not None
    assert info.config.retry_backoff.max_ms == 500
    rules.produce("u", [b"1"], idempotency_key="k", config=forever)
    assert rules.topic("u").config.idempotency_window_ms == 1_000
    clock.advance(1_001)
    assert not (rules.produce("u", [b"2"], idempotency_key="k")).deduped


def test_a_client_that_is_remembered_takes_no_place_from_another(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(client_marks_max=2))
    for client in "ab":
        rules.produce("t", [b"1"], client_id=client, client_seq=1)
    clock.advance(MARK_KEPT_MS + 1)
    rules.produce("t", [b"1"], client_id="b", client_seq=2)
    with pytest.raises(Conflict):
        rules.produce("t", [b"1"], client_id="a", client_seq=1)


def test_a_refused_append_forgets_no_mark(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(client_marks_max=1))
    rules.put_topic("t", {"cap_records": 1, "discard": "reject"})
    rules.produce("t", [b"1"], client_id="a", client_seq=1)
    clock.advance(7 * DAY_MS + 1)
    before = snapshot(rules)
    with pytest.raises(Overloaded):
        rules.produce("t", [b"2"], client_id="b", client_seq=1)
    assert snapshot(rules) == before


def test_the_number_of_unique_keys_is_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(unique_keys_max=1))
    make_queue(rules)
    rules.produce("q", [Record(data=b"1", unique_key="u")])
    with pytest.raises(Overloaded) as error:
        rules.produce("q", [Record(data=b"2", unique_key="v")])
    assert error.value.detail["limit"] == "unique_keys_max"
    assert (rules.produce("q", [Record(data=b"1", unique_key="u")])).deduped
    rules.claim("q", node="w", auto_ack=True)
    rules.produce("q", [Record(data=b"2", unique_key="v")])


# Limits

SMALL = Settings(
    records_max=3,
    record_bytes_max=100,
    append_bytes_max=250,
    meta_bytes_max=50,
    meta_keys_max=2,
    tag_bytes_max=8,
    key_bytes_max=8,
)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([], "invalid_request"),
        ([b""] * 4, "batch_too_large"),
        ([b"x" * 101], "record_too_large"),
        ([b"", b"x" * 101], "record_too_large"),
        ([Record(data=b"x" * 60, meta=b'{"a":"' + b"x" * 40 + b'"}')], "record_too_large"),
        ([b"x" * 99] * 3, "batch_too_large"),
        ([Record(data=b"", meta=b'{"a":"' + b"x" * 50 + b'"}')], "invalid_request"),
        ([Record(data=b"", meta=b'{"a":1,"b":2,"c":3}')], "invalid_request"),
        ([Record(data=b"", tag="x" * 9)], "invalid_request"),
        ([Record(data=b"", tag="é" * 5)], "invalid_request"),
        ([Record(data=b"", unique_key="x" * 9)], "invalid_request"),
        ([Record(data=b"", unique_key="")], "invalid_request"),
        ([Record(data=b"", node="x" * 129)], "invalid_request"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_name(records: list[bytes | Record], code: str) -> None:
    rules = Rules(settings=SMALL)
    make_queue(rules)
    before = snapshot(rules)
    with pytest.raises(Invalid) as error:
        rules.produce("q", records)
    assert error.value.code == code
    assert snapshot(rules) == before


def test_what_is_just_within_the_limits_is_taken() -> None:
    rules = Rules(settings=SMALL)
    make_queue(rules)
    rules.produce("q", [b"x" * 100])
    rules.produce("q", [Record(data=b"", tag="é" * 4, meta=b'{"a":1,"b":2}', node="n" * 128), b"", b""])
    rules.produce("q", [Record(data=b"", unique_key="12345678")], idempotency_key="12345678")
    assert rules.topic("q").count == 5


def test_a_ttl_lets_records_go_once_they_are_older(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, ttl_ms=1000)
    rules.produce("q", [b"1"])
    clock.advance(600)
    rules.produce("q", [b"2"])
    clock.advance(399)
    assert rules.topic("q").count == 2
    clock.advance(2)
    assert (rules.claim("q", node="w", max_count=9)).seqs == [2]
    clock.advance(5000)
    assert rules.topic("q").count == 1, "held"
    rules.ack("q", node="w", seqs=[2])
