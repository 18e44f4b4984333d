"""PATCH semantics: named fields change, the others stay, null is the default."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract.config import DEFAULTS, Backoff, TopicConfig, as_dict, patch_config
from tenure.errors import Conflict, Invalid

STORED = TopicConfig(
    type="queue",
    lease_ms=5_000,
    durability="fsync",
    priority=7,
    dead_letter="dead",
    retry_backoff=Backoff(min_ms=10, max_ms=20, factor=3.0, jitter=False),
)


def patch(existing: TopicConfig = STORED, /, **fields: Any) -> TopicConfig:
    return patch_config(fields, topic="jobs", existing=existing)


def test_only_named_fields_change() -> None:
    after = patch(max_deliveries=3)
    assert after.max_deliveries == 3
    assert {**as_dict(after), "max_deliveries": 0} == as_dict(STORED)


@pytest.mark.parametrize("field", [name for name in as_dict(DEFAULTS) if name not in ("type", "durable")])
def test_null_returns_a_field_to_its_default_and_leaves_the_others(field: str) -> None:
    after = as_dict(patch(**{field: None}))
    assert after[field] == as_dict(DEFAULTS)[field]
    others = {name: value for name, value in as_dict(STORED).items() if name not in (field, "durable")}
    assert others.items() <= after.items()


def test_the_type_stays_whether_it_is_left_out_repeated_or_null() -> None:
    assert {patch().type, patch(type="queue").type, patch(type=None).type} == {"queue"}


@pytest.mark.parametrize(("before", "wanted"), [(STORED, "log"), (DEFAULTS, "queue")])
def test_another_type_is_a_conflict(before: TopicConfig, wanted: str) -> None:
    with pytest.raises(Conflict) as caught:
        patch(before, type=wanted)
    assert caught.value.code == "topic_exists_incompatible"


def test_a_backoff_is_merged_field_by_field() -> None:
    assert patch(retry_backoff={"max_ms": 99}).retry_backoff == Backoff(min_ms=10, max_ms=99, factor=3.0, jitter=False)
    assert patch(retry_backoff={"factor": None}).retry_backoff == Backoff(min_ms=10, max_ms=20, jitter=False)
    assert patch(DEFAULTS, retry_backoff={"min_ms": 5}).retry_backoff == Backoff(min_ms=5)


@pytest.mark.parametrize(
    ("fields", "durability"),
    [
        ({"durable": False}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durable": None}, "disk"),
        ({"durability": "memory", "durable": True}, "memory"),
        ({"durability": "ephemeral"}, "memory"),
    ],
)
def test_the_alias_of_durability_counts_where_it_is_given_alone(fields: dict[str, Any], durability: str) -> None:
    assert patch(**fields).durability == durability


@pytest.mark.parametrize(
    "fields", [{"lease_ms": "5s"}, {"priority": 1001}, {"dead_letter": "jobs"}, {"retry_backoff": {"min_ms": 21}}]
)
def test_a_value_that_cannot_be_meant_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        patch(**fields)


@given(st.sets(st.sampled_from(sorted(as_dict(STORED)))))
def test_what_is_stored_patched_onto_defaults_of_its_type_gives_what_is_stored(fields: set[str]) -> None:
    before = TopicConfig(type="queue")
    both = patch(patch(before, **{name: as_dict(STORED)[name] for name in fields}), **as_dict(STORED))
    assert both == STORED
