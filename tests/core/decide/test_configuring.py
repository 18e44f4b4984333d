"""Changing topics that are there: patches, logs that become queues, and names that only a put brings back."""

from __future__ import annotations

import pytest

from tenure import Conflict, NotFound, Overloaded, Record, Settings
from tenure.testing.clock import ManualClock
from tests.kit.brokers import datas
from tests.kit.rules import Rules, fail_by_expiry, make_queue, numbers, read, snapshot

# Patch


def test_a_patch_changes_the_named_fields_and_no_others(rules: Rules) -> None:
    make_queue(rules, lease_ms=5_000, priority=3)
    info = rules.patch_topic("q", {"max_deliveries": 2, "priority": None})
    assert (info.config.lease_ms, info.config.max_deliveries, info.config.priority) == (5_000, 2, None)
    assert rules.topic("q").config == info.config


def test_a_patch_of_an_absent_topic_is_not_found(rules: Rules) -> None:
    before = snapshot(rules)
    with pytest.raises(NotFound) as error:
        rules.patch_topic("q", {})
    assert (error.value.code, snapshot(rules)) == ("topic_not_found", before)


def test_a_patch_to_another_type_is_refused_and_changes_nothing(rules: Rules) -> None:
    make_queue(rules)
    before = snapshot(rules)
    with pytest.raises(Conflict) as error:
        rules.patch_topic("q", {"type": "log", "lease_ms": 1_000})
    assert (error.value.code, snapshot(rules)) == ("topic_exists_incompatible", before)


def test_a_patched_cap_takes_effect_at_once(rules: Rules) -> None:
    rules.produce("t", [b"1", b"2", b"3"])
    rules.patch_topic("t", {"cap_records": 1})
    assert datas(read(rules, "t")) == [b"3"]


@pytest.mark.parametrize("made_by", ["router", "dead letter"])
def test_a_log_that_the_broker_made_becomes_a_queue_by_a_put(rules: Rules, clock: ManualClock, made_by: str) -> None:
    if made_by == "router":
        rules.put_router("r", source="a", dest="t")
        rules.produce("a", [b"1"])
    else:
        make_queue(rules, jobs=1, max_deliveries=1, dead_letter="t")
        fail_by_expiry(rules, clock)
        rules.claim("q", node="w")
    rules.put_topic("t", {"type": "queue"})
    assert datas((rules.claim("t", node="w")).jobs) == [b"1"]


@pytest.mark.parametrize("how", ["put", "patch", "config"])
def test_a_log_that_somebody_configured_stays_a_log(rules: Rules, how: str) -> None:
    rules.produce("t", [b"1"], config={"ttl_ms": 0} if how == "config" else None)
    if how == "put":
        rules.put_topic("t", {})
    elif how == "patch":
        rules.patch_topic("t", {})
    with pytest.raises(Conflict) as error:
        rules.put_topic("t", {"type": "queue"})
    assert error.value.code == "topic_exists_incompatible"


def test_a_queue_never_becomes_a_log(rules: Rules) -> None:
    rules.produce("q", [b"1"])
    rules.put_topic("q", {"type": "queue"})
    with pytest.raises(Conflict):
        rules.put_topic("q", {"type": "log"})


def test_a_claim_on_a_log_that_an_append_made_says_how_it_becomes_a_queue(rules: Rules) -> None:
    rules.produce("q", [b"1"])
    with pytest.raises(Conflict, match="put it with type queue") as error:
        rules.claim("q", node="w")
    assert error.value.code == "not_a_queue"


# auto_create


def test_an_append_does_not_create_a_topic_whose_config_says_so(rules: Rules) -> None:
    before = snapshot(rules)
    with pytest.raises(NotFound) as error:
        rules.produce("t", [b"1"], config={"auto_create": False})
    assert (error.value.code, snapshot(rules)) == ("topic_not_found", before)


def test_an_append_does_not_bring_back_a_topic_that_only_a_put_creates(rules: Rules) -> None:
    rules.put_topic("t", {"auto_create": False})
    rules.produce("t", [b"1"])
    rules.delete_topic("t")
    with pytest.raises(NotFound, match="put it"):
        rules.produce("t", [b"2"])
    assert rules.topics().items == []
    rules.put_topic("t")
    rules.produce("t", [b"3"])
    rules.delete_topic("t")
    assert (rules.produce("t", [b"4"])).created


def test_a_job_is_parked_where_its_dead_letter_topic_may_not_be_created(rules: Rules, clock: ManualClock) -> None:
    rules.put_topic("dead", {"auto_create": False})
    rules.delete_topic("dead")
    make_queue(rules, jobs=1, max_deliveries=1, dead_letter="dead")
    fail_by_expiry(rules, clock)
    assert (rules.claim("q", node="w")).jobs == []
    assert (numbers(rules)["parked"], rules.topics().items) == (1, ["q"])
    [parked] = rules.jobs("q", state="parked").items
    assert "auto_create was false" in str(parked.reason)


# Dead now


@pytest.mark.parametrize(("strategy", "left"), [("skip", "letters"), ("block", "parked"), ("block_and_dlq", "parked")])
def test_a_queue_counts_the_jobs_that_lie_dead_now(rules: Rules, strategy: str, left: str) -> None:
    make_queue(rules, jobs=3, dead_letter="dead", dlq_strategy=strategy)
    claim = rules.claim("q", node="w", max_count=3)
    rules.nack("q", node="w", lease_id=claim.lease_id, dead=True)
    assert (numbers(rules)["dead"], numbers(rules)["dead_lettered"]) == (3, 3)
    rules.redrive("dead" if left == "letters" else "q", limit=2)
    assert (numbers(rules)["dead"], numbers(rules)["dead_lettered"]) == (1, 3), "the total stays"


def test_a_job_parked_because_its_letters_are_full_counts_as_dead(rules: Rules) -> None:
    rules.put_topic("dead", {"cap_records": 1, "discard": "reject"})
    make_queue(rules, jobs=2, dead_letter="dead")
    rules.claim("q", node="w", max_count=2)
    for seq in (1, 2):
        rules.nack("q", node="w", seqs=[seq], dead=True)
    assert (numbers(rules)["parked"], numbers(rules)["dead"]) == (1, 2)


def test_names_kept_from_being_made_again_are_bounded(clock: ManualClock) -> None:
    rules = Rules(clock, Settings(retired_names_max=2))
    for name in ("a", "b", "c"):
        rules.put_topic(name, {"auto_create": False})
    rules.delete_topic("a")
    rules.delete_topic("b")
    with pytest.raises(Overloaded) as error:
        rules.delete_topic("c")
    assert error.value.detail == {"limit": "retired_names_max", "max": 2}
    rules.patch_topic("c", {"auto_create": True})
    assert rules.delete_topic("c") == (True, [])


# Logs that become queues


def test_a_log_that_an_append_made_becomes_a_queue_by_a_put(rules: Rules) -> None:
    rules.produce("q", [Record(data=b"1", tag="x"), Record(data=b"2"), Record(data=b"3")])
    rules.delete_records("q", seqs=[2])
    info, created = rules.put_topic("q", {"type": "queue", "lease_ms": 5_000})
    assert (created, info.type, info.config.lease_ms) == (False, "queue", 5_000)
    assert numbers(rules)["ready"] == 2
    claim = rules.claim("q", node="w", max_count=9)
    assert datas(claim.jobs) == [b"1", b"3"]
    rules.ack("q", node="w", lease_id=claim.lease_id)


def test_a_log_that_was_emptied_becomes_an_empty_queue(rules: Rules) -> None:
    rules.produce("q", [b"1"])
    rules.delete_records("q", before_seq=2)
    rules.put_topic("q", {"type": "queue"})
    rules.produce("q", [b"2"])
    assert datas((rules.claim("q", node="w")).jobs) == [b"2"]
