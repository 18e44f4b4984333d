"""The three spellings of a match, and everything that is none of them."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.tag_match import Match, parse_match
from tenure.errors import Invalid


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("x", Match(exact="x")),
        ("", Match(exact="")),
        ("x*", Match(exact="x*")),
        (["tag", "Eq", "x"], Match(exact="x")),
        (["tag", "Eq", "x*y"], Match(exact="x*y")),
        (("tag", "Eq", "x"), Match(exact="x")),
        (["tag", "Glob", "x*"], Match(prefix="x")),
        (["tag", "Glob", "*"], Match(prefix="")),
        (["tag", "Glob", "é?[a]*"], Match(prefix="é?[a]")),
    ],
)
def test_each_spelling_is_understood(value: object, match: Match) -> None:
    assert parse_match(value) == match


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        {},
        [],
        ["tag"],
        ["tag", "Eq"],
        ["tag", "Eq", "x", "y"],
        ["node", "Eq", "x"],
        [["tag"], "Eq", "x"],
        ["tag", "eq", "x"],
        ["tag", "Like", "x"],
        ["tag", None, "x"],
        ["tag", "Eq", None],
        ["tag", "Eq", 1],
        ["tag", "Eq", "\ud800"],
        ["tag", "Glob", ""],
        ["tag", "Glob", "x"],
        ["tag", "Glob", "*x"],
        ["tag", "Glob", "x*y*"],
        ["tag", "Glob", "x**"],
        ["tag", "Glob", ["x*"]],
        ["tag", "Glob", "x" * 300 + "*"],
        "t" * 5000,
        "\udfff",
    ],
)
def test_anything_else_is_refused_shortly(value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        parse_match(value)
    assert len(caught.value.message) < 300
    caught.value.message.encode()


def test_the_limit_is_an_argument() -> None:
    assert parse_match("t" * 300, bytes_max=300).exact == "t" * 300
    with pytest.raises(Invalid):
        parse_match(["tag", "Glob", "abcde*"], bytes_max=4)


def test_a_record_without_a_tag_never_matches() -> None:
    assert not parse_match("").matches(None)
    assert not parse_match(["tag", "Glob", "*"]).matches(None)
    assert parse_match(["tag", "Glob", "*"]).matches("")


TAGS = st.text(alphabet="ab\x00é", max_size=4)


@given(TAGS, TAGS)
def test_matches_agrees_with_a_shell_pattern(text: str, tag: str) -> None:
    assert parse_match(["tag", "Glob", text + "*"]).matches(tag) == fnmatch.fnmatchcase(tag, text + "*")
    assert parse_match(["tag", "Eq", text]).matches(tag) == (tag == text)
