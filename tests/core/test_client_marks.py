"""Marks against a plain dict, and their order of expiry."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.contract.config import DEFAULTS
from tenure.core.events import Appended, AppendExtra
from tenure.core.fold import fold
from tenure.core.state.client_marks import ClientMarks, Mark
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Corrupt


def test_a_client_without_a_mark_has_none() -> None:
    marks = ClientMarks()
    assert marks.get("a") is None
    assert len(marks) == 0
    assert marks.expire(10**15) == 0


def test_the_last_advance_is_what_is_kept() -> None:
    marks = ClientMarks()
    marks.advance("a", 1, first_seq=10, last_seq=19, at_ms=100)
    marks.advance("a", 2**64 - 1, first_seq=20, last_seq=20, at_ms=200)
    assert marks.get("a") == Mark(last_client_seq=2**64 - 1, first_seq=20, last_seq=20, at_ms=200)
    assert len(marks) == 1


def test_an_advance_keeps_a_mark_from_expiring_and_a_look_does_not() -> None:
    marks = ClientMarks()
    for at_ms, client in enumerate("abc"):
        marks.advance(client, 1, first_seq=1, last_seq=1, at_ms=at_ms)
    marks.advance("a", 2, first_seq=2, last_seq=2, at_ms=3)
    assert marks.get("b") is not None
    assert marks.expire(before_ms=2) == 1
    assert marks.get("b") is None
    assert marks.get("a") is not None
    assert marks.get("c") is not None


def test_the_oldest_mark_is_the_one_that_was_advanced_longest_ago() -> None:
    marks = ClientMarks()
    assert marks.oldest() is None
    for at_ms, client in enumerate("aba"):
        marks.advance(client, at_ms, first_seq=1, last_seq=1, at_ms=at_ms)
    assert marks.oldest() == ("b", Mark(last_client_seq=1, first_seq=1, last_seq=1, at_ms=1))
    for client in ("b", "b", "nobody"):
        marks.forget(client)
    assert (marks.get("b"), len(marks)) == (None, 1)


def test_a_displaced_mark_gives_way_in_the_fold() -> None:
    state, topic = State(), Topic(1, "t", DEFAULTS)
    state.add_topic(topic)
    for seq, (client, displaced) in enumerate((("a", None), ("b", None), ("c", "a"), ("d", "nobody")), start=1):
        extra = AppendExtra(client=(client, 1), displaced=displaced)
        fold(state, Appended(seq, 1, seq, seq, 1, b"", b"x", True, extra))
    assert topic.marks is not None
    assert [client for client in "abcd" if topic.marks.get(client) is not None] == ["b", "c", "d"]


def test_a_mark_at_the_border_stays() -> None:
    marks = ClientMarks()
    marks.advance("a", 1, first_seq=1, last_seq=1, at_ms=50)
    assert marks.expire(before_ms=50) == 0
    assert marks.expire(before_ms=51) == 1


STEPS = st.lists(st.tuples(st.sampled_from("abcdé"), st.integers(0, 5), st.booleans()), max_size=40)


@given(STEPS)
def test_marks_agree_with_a_dict_and_survive_a_dump(steps: list[tuple[str, int, bool]]) -> None:
    marks, naive, now_ms = ClientMarks(), dict[str, Mark](), 0
    for number, (client, pause_ms, sweep) in enumerate(steps, start=1):
        now_ms += pause_ms
        if sweep:
            gone = [name for name, mark in naive.items() if mark.at_ms < now_ms - 6]
            assert marks.expire(now_ms - 6) == len(gone)
            for name in gone:
                del naive[name]
        marks.advance(client, number, first_seq=number * 10, last_seq=number * 10 + 3, at_ms=now_ms)
        naive[client] = Mark(number, number * 10, number * 10 + 3, now_ms)
        assert {name: marks.get(name) for name in "abcdé" if marks.get(name)} == naive
        assert len(marks) == len(naive)
    copy = ClientMarks.load(marks.dump())
    assert copy.dump() == marks.dump()
    assert {name: copy.get(name) for name in naive} == naive
    for threshold_ms in range(now_ms + 2):
        assert copy.expire(threshold_ms) == marks.expire(threshold_ms)
    assert len(copy) == len(marks) == 0


def test_front_expiries_do_not_rescan_what_is_gone() -> None:
    # One by one from the front of 50,000: quadratic work would take minutes.
    marks = ClientMarks()
    for at_ms in range(50_000):
        marks.advance(f"c{at_ms}", 1, first_seq=1, last_seq=1, at_ms=at_ms)
    assert sum(marks.expire(at_ms) for at_ms in range(50_001)) == 50_000


@pytest.mark.parametrize(
    "dumped",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode([["a"], b"short"]),
        msgspec.msgpack.encode([["a", "a"], bytes(64)]),
        msgspec.msgpack.encode([[], bytes(32)]),
    ],
)
def test_a_damaged_dump_is_called_corrupt(dumped: bytes) -> None:
    with pytest.raises(Corrupt):
        ClientMarks.load(dumped)
