"""Topics as such: put, look, list, delete."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from tenure import Conflict, Invalid, NotFound, Overloaded, Record, Settings
from tenure.contract.config import DEFAULTS
from tenure.contract.replies.topics import config_info
from tenure.testing.clock import ManualClock
from tests.kit.brokers import seqs
from tests.kit.rules import Rules, make_queue, numbers, read, snapshot

# Put


def test_a_put_creates_and_a_second_put_replaces(rules: Rules) -> None:
    info, created = rules.put_topic("t", {"ttl_ms": 5000, "cap_records": 7})
    assert created
    assert (info.topic, info.type, info.config.ttl_ms, info.config.cap_records) == ("t", "log", 5000, 7)
    info, created = rules.put_topic("t", {"cap_records": 9})
    assert not created
    assert (info.config.ttl_ms, info.config.cap_records) == (0, 9), "what is left out returns to its default"


def test_a_topic_without_config_has_every_default_and_every_field(rules: Rules) -> None:
    info, _ = rules.put_topic("t")
    assert info.config == config_info(DEFAULTS)
    shown = to_builtins(info.config)
    assert {"durable", "lease_ms", "max_ack_holes", "retry_backoff"} <= shown.keys(), "on logs too"


def test_the_type_stays_when_it_is_left_out_and_never_changes(rules: Rules) -> None:
    rules.put_topic("q", {"type": "queue", "lease_ms": 500})
    info, _ = rules.put_topic("q", {})
    assert (info.type, info.config.lease_ms) == ("queue", 30_000)
    before = snapshot(rules)
    with pytest.raises(Conflict) as error:
        rules.put_topic("q", {"type": "log"})
    assert error.value.code == "topic_exists_incompatible"
    assert snapshot(rules) == before


def test_a_put_that_lowers_a_cap_evicts_at_once(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    rules.put_topic("t", {"cap_records": 1})
    assert seqs(read(rules, "t")) == [3]


def test_a_put_of_an_empty_list_is_not_a_put_of_nothing(rules: Rules) -> None:
    with pytest.raises(Invalid):
        rules.put_topic("t", [])  # type: ignore[arg-type]
    assert rules.topics().items == []


def test_a_topic_knows_what_it_holds(rules: Rules, clock: ManualClock) -> None:
    rules.produce("t", [b"one", b"three"])
    rules.delete_records("t", before_seq=2)
    info = rules.topic("t")
    assert (info.head_seq, info.earliest_seq, info.next_seq, info.count, info.bytes) == (2, 2, 3, 1, 5)
    assert info.last_write_ts == clock.wall_ms()


def test_the_earliest_seq_of_a_topic_whose_records_are_gone_lies_above_its_head(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2"])
    rules.delete_records("t", before_seq=99)
    info = rules.topic("t")
    assert (info.head_seq, info.earliest_seq, info.count, info.bytes) == (2, 3, 0, 0)


def test_a_queue_counts_its_jobs_by_state(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules, jobs=5, dlq_strategy="block")
    rules.produce("q", [Record(data=b"later", delay_ms=1000)])
    rules.claim("q", node="w", max_count=4)
    rules.ack("q", node="w", seqs=[3])
    rules.nack("q", node="w", seqs=[4], dead=True)
    clock.advance(250)
    assert numbers(rules) == {
        "ready": 1,
        "in_flight": 2,
        "delayed": 1,
        "parked": 1,
        "dead": 1,
        "dead_lettered": 1,
        "oldest_ready_ms": 250,
        "ack_holes": 1,
        "suspects": 0,
    }


def test_the_oldest_ready_job_is_the_one_a_claim_would_get_next(rules: Rules, clock: ManualClock) -> None:
    make_queue(rules)
    rules.produce("q", [Record(data=b"1", delay_ms=10_000)])
    clock.advance(100)
    rules.produce("q", [b"2"])
    clock.advance(30)
    assert numbers(rules)["oldest_ready_ms"] == 30
    rules.claim("q", node="w", auto_ack=True)
    assert numbers(rules)["oldest_ready_ms"] == 0
    clock.advance(10_000)
    assert numbers(rules)["oldest_ready_ms"] == 10_130


def test_an_absent_topic_is_not_found(rules: Rules) -> None:
    with pytest.raises(NotFound) as error:
        rules.topic("nothing")
    assert error.value.code == "topic_not_found"


def test_a_priority_that_was_set_is_the_one_in_effect(rules: Rules) -> None:
    rules.put_topic("t", {"priority": -7})
    assert rules.topic("t").effective_priority == -7


def test_an_automatic_priority_fades_from_the_last_read(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("t")
    assert rules.topic("t", touch=False).effective_priority == 0, "never read"
    rules.diff("t")
    assert rules.topic("t", touch=False).effective_priority == 100
    clock.advance(5 * 60_000)
    assert rules.topic("t", touch=False).effective_priority == 95
    assert rules.topic("t").effective_priority == 100, "a look that counts as a read"
    clock.advance(1000 * 60_000)
    assert rules.topic("t", touch=False).effective_priority == 0
    rules.put_topic("t", {"auto_priority": False})
    assert rules.topic("t").effective_priority == 0


# List


def test_topics_are_listed_in_order_and_by_prefix(rules: Rules) -> None:
    for name in ("b.2", "a", "b.10", "c", "b"):
        rules.put_topic(name)
    assert rules.topics().items == ["a", "b", "b.10", "b.2", "c"]
    assert rules.topics(prefix="b.").items == ["b.10", "b.2"]
    assert rules.topics(prefix="zz").items == []
    assert rules.topics(prefix="\ud800").items == [], "no name has it"


def test_pages_follow_each_other_and_only_the_last_has_no_cursor(rules: Rules) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in [*names, "other"]:
        rules.put_topic(name)
    found, cursor, pages = [], None, 0
    while True:
        page = rules.topics(prefix="t", limit=3, cursor=cursor)
        found += page.items
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    assert (found, pages) == (names, 3)
    assert rules.topics(prefix="t", limit=7).next_cursor is None, "a full last page is the last all the same"


def test_a_listing_goes_on_behind_a_topic_that_was_deleted_meanwhile(rules: Rules) -> None:
    for name in "abcd":
        rules.put_topic(name)
    page = rules.topics(limit=2)
    rules.delete_topic("b")
    assert rules.topics(cursor=page.next_cursor).items == ["c", "d"]


@pytest.mark.parametrize("cursor", ["", "a", "====", "dDE6", "dDE6YQ==", "dDE6YQ=", "é", "dDE6YQ\n", "x" * 5000])
def test_a_cursor_that_no_listing_gave_out_is_refused(rules: Rules, cursor: str) -> None:
    rules.put_topic("q", {"type": "queue"})
    for listing in (rules.topics, rules.routers):
        with pytest.raises(Invalid):
            listing(cursor=cursor)
    for listing_of in (rules.jobs, rules.leases):
        with pytest.raises(Invalid):
            listing_of("q", cursor=cursor)


# Delete


def test_deleting_what_is_not_there_is_no_error(rules: Rules) -> None:
    assert rules.delete_topic("t") == (False, [])


def test_a_deleted_topic_is_gone_with_its_records(rules: Rules) -> None:
    rules.produce("t", [b"1"])
    assert rules.delete_topic("t") == (True, [])
    assert rules.topics().items == []
    with pytest.raises(NotFound):
        rules.diff("t")


def test_a_recreated_topic_starts_over(rules: Rules) -> None:
    make_queue(rules, jobs=3, max_deliveries=1, dlq_strategy="block")
    old = rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", seqs=[1], dead=True)
    rules.delete_topic("q")
    make_queue(rules, jobs=1)
    assert numbers(rules)["dead_lettered"] == 0
    new = rules.claim("q", node="w")
    assert (new.seqs, new.deliveries(1)) == ([1], 1)
    assert new.lease_id != old.lease_id
    assert (rules.ack("q", node="w", lease_id=old.lease_id)).count == 0


def test_a_delete_takes_the_routers_at_either_end_along(rules: Rules) -> None:
    rules.put_router("in", source="a", dest="t")
    rules.put_router("out", source="t", dest="b")
    rules.put_router("beside", source="a", dest="b")
    rules.put_topic("t")
    assert rules.delete_topic("t") == (True, ["in", "out"])
    assert [router.name for router in rules.routers().items] == ["beside"]


def test_if_empty_spares_a_topic_with_records(rules: Rules) -> None:
    rules.produce("t", [b"1"])
    with pytest.raises(Conflict) as error:
        rules.delete_topic("t", if_empty=True)
    assert error.value.code == "topic_not_empty"
    rules.delete_records("t", before_seq=2)
    assert rules.delete_topic("t", if_empty=True) == (True, [])


def test_durable_is_another_word_for_fsync_and_durability_wins(rules: Rules) -> None:
    info, _ = rules.put_topic("a", {"durable": True})
    assert (info.config.durability, info.config.durable) == ("fsync", True)
    info, _ = rules.put_topic("b", {"durable": True, "durability": "memory"})
    assert (info.config.durability, info.config.durable) == ("memory", False)


def test_a_limit_of_zero_acts_as_one_and_a_large_one_is_clamped(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(page_max=2))
    for name in "abc":
        rules.put_topic(name)
    assert rules.topics(limit=0).items == ["a"]
    assert rules.topics(limit=1000).items == ["a", "b"]


def test_the_number_of_topics_is_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(topics_max=2))
    rules.put_topic("a")
    rules.produce("b", [b"1"])
    before = snapshot(rules)
    with pytest.raises(Overloaded) as error:
        rules.put_topic("c")
    assert error.value.detail == {"limit": "topics_max", "max": 2}
    with pytest.raises(Overloaded):
        rules.produce("c", [b"1"])
    assert snapshot(rules) == before
    rules.put_topic("a", {"ttl_ms": 1})
    rules.delete_topic("a")
    rules.put_topic("c")


def test_an_empty_log_says_where_it_will_begin(rules: Rules) -> None:
    rules.put_topic("t")
    info = rules.topic("t")
    assert (info.head_seq, info.durable_seq, info.earliest_seq, info.next_seq) == (0, 0, 1, 1)
    assert (info.count, info.bytes, info.last_write_ts, info.queue) == (0, 0, 0, None)
