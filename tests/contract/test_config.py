"""PUT semantics, bounds field by field, and what a config looks like in an answer and in the log."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract import config as configs
from tenure.contract.config import DEFAULTS, Backoff, TopicConfig, as_dict, clamp_durations, intern_config, parse_config
from tenure.errors import Conflict, Invalid

WHOLE = ("cap_records", "cap_bytes", "max_deliveries", "max_ack_holes", "max_in_flight")
DURATIONS = ("ttl_ms", "idempotency_window_ms")
CLAMPED = ("lease_ms", "claim_jitter_ms")
FLAGS = ("durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable")
CHOICES = ("type", "discard", "durability", "dlq_strategy")
NULLABLE = ("priority", "dead_letter", "retry_backoff")
EVERY_FIELD = {*WHOLE, *DURATIONS, *CLAMPED, *FLAGS, *CHOICES, *NULLABLE}


def parse(**fields: Any) -> TopicConfig:
    return parse_config(fields, topic="jobs")


def test_an_empty_put_gives_the_defaults_of_the_contract() -> None:
    assert as_dict(parse()) == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durability": "disk",
        "durable": False,
        "priority": None,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "dead_letter": None,
        "leases_durable": False,
        "max_ack_holes": 0,
        "max_in_flight": 0,
        "dlq_strategy": "skip",
        "retry_backoff": None,
    }
    assert set(as_dict(parse())) == EVERY_FIELD


def test_an_omitted_field_returns_to_its_default_but_the_type_stays() -> None:
    before = parse(type="queue", lease_ms=5000, dead_letter="dead", priority=7)
    after = parse_config({"max_deliveries": 3}, topic="jobs", existing=before)
    assert after == TopicConfig(type="queue", max_deliveries=3)


def test_the_type_may_be_repeated_but_not_changed() -> None:
    queue = parse(type="queue")
    assert parse_config({"type": "queue"}, topic="jobs", existing=queue) == queue
    with pytest.raises(Conflict) as caught:
        parse_config({"type": "log"}, topic="jobs", existing=queue)
    assert caught.value.code == "topic_exists_incompatible"


@pytest.mark.parametrize(
    ("fields", "durability"),
    [
        ({}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durable": False}, "disk"),
        ({"durability": "memory"}, "memory"),
        ({"durability": "ephemeral"}, "memory"),
        ({"durability": "ephemeral", "durable": True}, "memory"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": False, "durability": "fsync"}, "fsync"),
    ],
)
def test_durable_is_an_alias_that_an_explicit_durability_overrules(fields: dict[str, Any], durability: str) -> None:
    config = parse(**fields)
    assert config.durability == durability
    assert config.durable is as_dict(config)["durable"] is (durability == "fsync")


def test_lease_and_jitter_are_clamped() -> None:
    assert [parse(lease_ms=ms).lease_ms for ms in (0, 99, 100, 86_400_000, 2**64 - 1)] == [
        100,
        100,
        100,
        86_400_000,
        86_400_000,
    ]
    assert [parse(claim_jitter_ms=ms).claim_jitter_ms for ms in (0, 5000, 5001)] == [0, 5000, 5000]


def test_for_ever_is_a_hundred_years() -> None:
    for field in DURATIONS:
        assert getattr(parse(**{field: 2**64 - 1}), field) == configs.DURATION_MS_MAX
    backoff = parse(retry_backoff={"max_ms": 2**64 - 1}).retry_backoff
    assert backoff is not None
    assert backoff.max_ms == configs.DURATION_MS_MAX


def test_an_operators_limits_clamp_the_window_and_the_back_off_and_nothing_else() -> None:
    asked = parse(
        type="queue", ttl_ms=9_000, idempotency_window_ms=9_000, retry_backoff={"min_ms": 200, "max_ms": 9_000}
    )
    within = clamp_durations(asked, window_ms_max=1_000, backoff_ms_max=100)
    assert within == msgspec.structs.replace(
        asked, idempotency_window_ms=1_000, retry_backoff=Backoff(min_ms=100, max_ms=100)
    )
    assert clamp_durations(asked, window_ms_max=9_000, backoff_ms_max=9_000) is asked
    assert clamp_durations(within, window_ms_max=1_000, backoff_ms_max=100) is within


@pytest.mark.parametrize("field", WHOLE)
def test_counts_go_up_to_u64(field: str) -> None:
    assert getattr(parse(**{field: 2**64 - 1}), field) == 2**64 - 1


def refusals() -> list[tuple[str, Any]]:
    numbers: list[Any] = [None, True, False, -1, 1.0, "1", [], {}, 2**64, 10**6000]
    cases: list[tuple[str, Any]] = [(field, value) for field in WHOLE + DURATIONS + CLAMPED for value in numbers]
    flags: list[Any] = [None, 0, 1, "true", [], {}]
    cases += [(field, value) for field in FLAGS for value in flags]
    words: list[Any] = [None, "", "LOG", "Disk", 1, True, [], {}, "x" * 5000]
    cases += [(field, value) for field in CHOICES for value in words]
    priorities: list[Any] = [-1001, 1001, True, 1.0, "1", [], 10**6000]
    cases += [("priority", value) for value in priorities]
    cases += [("dead_letter", value) for value in ("", "jobs", "a b", "a\n", 1, True, ["dead"], "d" * 256)]
    cases += [("retry_backoff", value) for value in (True, 1, "x", [], [1, 2, 3])]
    cases += [("retry_backoff", {field: value}) for field in ("min_ms", "max_ms") for value in numbers]
    factors = [None, True, "2", 0, 0.99, -1, 1000.5, float("inf"), float("nan"), 10**400]
    cases += [("retry_backoff", {"factor": factor}) for factor in factors]
    cases += [("retry_backoff", {"jitter": value}) for value in (None, 1, "x")]
    cases += [("retry_backoff", {"min_ms": 10, "max_ms": 9})]
    return cases


@pytest.mark.parametrize(("field", "value"), refusals(), ids=lambda value: type(value).__name__)
def test_a_value_that_cannot_be_meant_is_refused(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse(**{field: value})
    assert field in caught.value.message
    assert caught.value.detail["field"].startswith(field)
    assert len(caught.value.message) < 400


def test_a_wrong_alias_is_refused_even_where_it_is_overruled() -> None:
    with pytest.raises(Invalid):
        parse(durability="fsync", durable=1)


@pytest.mark.parametrize("value", [None, 1, "x", [], [["type", "queue"]]])
def test_a_config_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        parse_config(value, topic="jobs")


def test_null_stands_where_the_default_is_null() -> None:
    assert parse(**dict.fromkeys(NULLABLE)) == DEFAULTS


def test_unknown_fields_are_ignored() -> None:
    assert parse(colour="blue", retry_backoff={"colour": 1}) == TopicConfig(retry_backoff=Backoff())


def test_back_off_fields_have_defaults_of_their_own() -> None:
    given = {"min_ms": 10, "max_ms": 50, "factor": 3, "jitter": False}
    config = parse(type="queue", retry_backoff=given)
    assert config.retry_backoff == Backoff(min_ms=10, max_ms=50, factor=3.0, jitter=False)
    assert as_dict(config)["retry_backoff"] == given
    assert parse(retry_backoff={"min_ms": 7_200_000}).retry_backoff == Backoff(min_ms=7_200_000, max_ms=7_200_000)


def test_priority_reaches_both_ends() -> None:
    assert parse(priority=-1000).priority == -1000
    assert parse(priority=1000).priority == 1000


def test_equal_configs_are_one_object() -> None:
    assert parse() is DEFAULTS
    one, other = parse(type="queue", ttl_ms=5), parse(ttl_ms=5, type="queue")
    assert one is other
    assert intern_config(TopicConfig(type="queue", ttl_ms=5)) is one


def test_many_odd_configs_do_not_pile_up() -> None:
    for ttl_ms in range(5000):
        assert parse(ttl_ms=ttl_ms).ttl_ms == ttl_ms
    assert len(configs._shared) <= 1024
    assert parse() is DEFAULTS


CONFIGS = st.builds(
    parse,
    type=st.sampled_from(["log", "queue"]),
    durability=st.sampled_from(["memory", "disk", "fsync"]),
    cap_bytes=st.integers(0, 2**64 - 1),
    ttl_ms=st.integers(0, 2**64 - 1),
    priority=st.none() | st.integers(-1000, 1000),
    dead_letter=st.none() | st.just("dead"),
    retry_backoff=st.none() | st.fixed_dictionaries({"factor": st.floats(1, 1000), "min_ms": st.integers(0, 10**6)}),
)


@given(CONFIGS)
def test_an_answered_config_can_be_put_back(config: TopicConfig) -> None:
    assert parse_config(as_dict(config), topic="jobs") is config


@given(CONFIGS)
def test_a_logged_config_comes_back_equal(config: TopicConfig) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=TopicConfig) == config


def test_the_log_holds_every_value_so_that_new_defaults_leave_old_topics_alone() -> None:
    assert len(msgspec.msgpack.decode(msgspec.msgpack.encode(DEFAULTS))) == len(TopicConfig.__struct_fields__) == 20
