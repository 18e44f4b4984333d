"""What each check lets through, and that a refusal is short and says why."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract import names
from tenure.errors import Invalid

CHECKS: list[Callable[[object], str]] = [
    names.check_topic_name,
    names.check_router_name,
    names.check_node,
    names.check_tag,
    names.check_client_id,
    names.check_key,
]


@pytest.mark.parametrize("name", ["a", "0", "jobs", "Jobs.v2:eu-1_x", "a" * 255, "a..", "9-"])
def test_legal_names_pass_unchanged(name: str) -> None:
    assert names.check_topic_name(name) == name
    assert names.check_router_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "-a", "_a", ":a", "a b", "a/b", "a\n", "\na", "a\x00", "é", "aé", "٣", "\u212a", "a" * 256, "a\ud800"],
)
def test_illegal_names_are_refused(name: str) -> None:
    for check in (names.check_topic_name, names.check_router_name):
        with pytest.raises(Invalid):
            check(name)


def test_only_router_names_may_hold_an_arrow() -> None:
    assert names.check_router_name("a->b") == "a->b"
    for check, name in ((names.check_topic_name, "a->b"), (names.check_router_name, ">b")):
        with pytest.raises(Invalid):
            check(name)


@given(st.text(max_size=6))
def test_topic_names_are_those_of_the_contract(name: str) -> None:
    legal = re.match(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z", name) is not None
    if legal:
        assert names.check_topic_name(name) == name
    else:
        with pytest.raises(Invalid):
            names.check_topic_name(name)


def test_limits_count_bytes_not_characters() -> None:
    assert names.check_node("é" * 64) == "é" * 64
    for check, text in (
        (names.check_node, "é" * 65),
        (names.check_node, "n" * 129),
        (names.check_tag, "é" * 129),
        (names.check_client_id, "c" * 257),
        (names.check_key, "k" * 257),
    ):
        with pytest.raises(Invalid):
            check(text)


def test_limits_are_arguments() -> None:
    assert names.check_tag("t" * 300, bytes_max=300) == "t" * 300
    assert names.check_client_id("c" * 300, bytes_max=300) == "c" * 300
    with pytest.raises(Invalid, match="claim_id must be a string of 1 to 4 bytes"):
        names.check_key("12345", field="claim_id", bytes_max=4)


def test_only_a_tag_may_be_empty() -> None:
    assert names.check_tag("") == ""
    for check in (names.check_node, names.check_client_id, names.check_key):
        with pytest.raises(Invalid):
            check("")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "value",
    [None, True, 7, 10**6000, 1.5, b"a", ["a"], {"a": 1}, "x\ud800", "\udfff", "z" * 5000, "\n" * 5000],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_in_a_short_message(check: Callable[[object], str], value: object) -> None:
    with pytest.raises(Invalid) as caught:
        check(value)
    assert caught.value.code == "invalid_request"
    assert 10 < len(caught.value.message) < 400
    caught.value.message.encode()


def test_a_refusal_shows_what_was_sent() -> None:
    with pytest.raises(Invalid, match=re.escape(r"got 'a\n'")):
        names.check_topic_name("a\n")
    assert names.describe_value("x" * 5000).endswith("(5000 long)")
    assert names.describe_value(10**6000) == "an integer of 19932 bits"
    assert names.describe_value({"a": 1}) == "a value of type dict"
