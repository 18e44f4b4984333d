"""The tag index against a dict of tags, with chunks made tiny so that splits, merges and the hand are met."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.state import tags
from tenure.core.state.tags import TagIndex
from tenure.core.tag_match import Match
from tenure.errors import Corrupt


@contextmanager
def tiny_chunks(entries_max: int = 4) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tags, "_CHUNK_ENTRIES_MAX", entries_max)
        yield


def exact(index: TagIndex, tag: str, looks_max: int = 3) -> list[int]:
    return list(chain.from_iterable(index.parts(Match(exact=tag), below=1 << 63, looks_max=looks_max)))


def prefix(index: TagIndex, beginning: str, looks_max: int = 3) -> list[int]:
    return sorted(chain.from_iterable(index.parts(Match(prefix=beginning), below=1 << 63, looks_max=looks_max)))


def nothing_dead(_seq: int) -> bool:
    return False


def filled(entries: dict[int, str], is_dead: Callable[[int], bool] = nothing_dead) -> TagIndex:
    index = TagIndex(is_dead)
    for seq, tag in entries.items():
        index.add(tag, seq)
    return index


def check_invariants(index: TagIndex) -> None:
    entries = [pair for chunk in index._chunks for pair in zip(chunk.tags, chunk.seqs, strict=True)]
    assert all(before < after for before, after in pairwise(entries))
    assert all(chunk.tags for chunk in index._chunks)
    assert all(len(chunk.tags) <= tags._CHUNK_ENTRIES_MAX for chunk in index._chunks)
    assert index._lasts == [chunk.tags[-1] for chunk in index._chunks]
    assert len(index) == len(entries)


def test_exact_and_prefix_answer_seqs_in_order() -> None:
    index = filled({1: "b", 2: "ab", 3: "a", 4: "abc", 5: "a", 6: "", 7: "ab"})
    assert exact(index, "a") == [3, 5]
    assert exact(index, "ab") == [2, 7]
    assert exact(index, "") == [6]
    assert exact(index, "zz") == []
    assert prefix(index, "a") == [2, 3, 4, 5, 7]
    assert prefix(index, "") == [1, 2, 3, 4, 5, 6, 7]
    assert prefix(index, "abcd") == []


def test_an_empty_index_answers_nothing() -> None:
    index = TagIndex(nothing_dead)
    assert exact(index, "a") == prefix(index, "") == []
    assert len(index) == 0
    index.sweep(1000)
    assert TagIndex.load(index.dump(), is_dead=nothing_dead).dump() == index.dump()


def test_nul_characters_and_the_ends_of_unicode_are_letters_like_others() -> None:
    entries = {1: "a", 2: "a\0", 3: "a\0\0", 4: "a\0b", 5: "a\U0010ffff", 6: "aé", 7: "b", 8: "\0"}
    index = filled(entries)
    for seq, tag in entries.items():
        assert exact(index, tag) == [seq]
    assert prefix(index, "a\0") == [2, 3, 4]
    assert prefix(index, "a") == [1, 2, 3, 4, 5, 6]
    assert prefix(index, "a\U0010ffff") == [5]
    assert prefix(index, "\0") == [8]


def test_noting_an_entry_again_changes_nothing() -> None:
    with tiny_chunks():
        index = filled(dict.fromkeys(range(1, 20), "t"))
        for seq in (1, 4, 5, 10, 19):
            index.add("t", seq)
        assert exact(index, "t") == list(range(1, 20))
        assert len(index) == 19
        check_invariants(index)


def test_seqs_that_come_late_find_their_place() -> None:
    seqs = list(range(1, 200))
    random.Random(3).shuffle(seqs)
    with tiny_chunks():
        index = filled({seq: "mid" if seq % 3 else "z" for seq in seqs})
        check_invariants(index)
    assert exact(index, "mid") == [seq for seq in range(1, 200) if seq % 3]


def test_the_dead_are_never_answered() -> None:
    dead: set[int] = set()
    index = filled(dict.fromkeys(range(1, 10), "t"), dead.__contains__)
    dead.update((2, 3, 9))
    assert exact(index, "t") == prefix(index, "t") == [1, 4, 5, 6, 7, 8]


TAGS = st.text(alphabet="ab\0é\U0010ffff", max_size=3)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "die", "late", "reload"]), TAGS), max_size=100)


@settings(max_examples=200)
@given(STEPS, st.integers(2, 9))
def test_the_index_agrees_with_a_dict(steps: list[tuple[str, str]], entries_max: int) -> None:
    with tiny_chunks(entries_max):
        dead: set[int] = set()
        naive: dict[int, str] = {}
        index = TagIndex(dead.__contains__)
        for number, (step, tag) in enumerate(steps, start=1):
            if step == "add" or step == "late":
                seq = 1000 + number if step == "add" else 1000 - number
                naive[seq] = tag
                index.add(tag, seq)
            elif step == "die":
                dead.update([seq for seq, other in naive.items() if other == tag])
                naive = {seq: other for seq, other in naive.items() if other != tag}
            else:
                index = TagIndex.load(index.dump(), is_dead=dead.__contains__)
            check_invariants(index)
            assert exact(index, tag) == sorted(seq for seq, other in naive.items() if other == tag)
            assert prefix(index, tag) == sorted(seq for seq, other in naive.items() if other.startswith(tag))
        assert prefix(index, "") == sorted(naive)
        assert index.dump() == filled(naive).dump()


@pytest.mark.parametrize("shape", ["rising", "random", "few"])
def test_garbage_stays_within_a_constant_factor_of_the_living(shape: str) -> None:
    source = random.Random(7)
    floor, live = 0, 1000
    index = TagIndex(lambda seq: seq < floor)
    for seq in range(1, 30_000):
        floor = seq - live
        tag = {"rising": f"{seq:08}", "random": f"{source.getrandbits(32):08x}", "few": f"{seq % 10}"}[shape]
        index.add(tag, seq)
        assert len(index) <= 2 * live + 2 * tags._CHUNK_ENTRIES_MAX
    check_invariants(index)
    assert prefix(index, "") == list(range(floor, seq + 1))


def test_whoever_adds_nothing_can_sweep() -> None:
    dead: set[int] = set()
    index = filled({seq: f"{seq:05}" for seq in range(1, 3001)}, dead.__contains__)
    dead.update(range(1, 2991))
    index.sweep(4000)
    assert len(index) == 10
    check_invariants(index)
    dead.update(range(1, 3001))
    index.sweep(4000)
    assert len(index) == 0
    index.add("a", 5000)
    assert exact(index, "a") == [5000]


def test_rising_tags_leave_full_chunks_behind() -> None:
    for tag in ("{:08}", "same"):
        index = filled({seq: tag.format(seq) for seq in range(1, 5001)})
        assert len(index._chunks) <= 5000 // tags._CHUNK_ENTRIES_MAX + 1


def test_entries_of_one_tag_share_it() -> None:
    index = filled({seq: f"tenant-{seq % 3}" for seq in range(300)})
    assert len({id(tag) for chunk in index._chunks for tag in chunk.tags}) <= 3 * len(index._chunks)


@pytest.mark.parametrize(
    "dumped",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode([[b"a"], [2], bytes(8)]),
        msgspec.msgpack.encode([[b"a", b"b"], [1], bytes(8)]),
        msgspec.msgpack.encode([[b"a", b"b"], [2, -1], bytes(8)]),
    ],
)
def test_a_damaged_dump_is_called_corrupt(dumped: bytes) -> None:
    with pytest.raises(Corrupt):
        TagIndex.load(dumped, is_dead=nothing_dead)


@pytest.mark.parametrize("looks_max", [1, 2, 7])
def test_a_part_goes_on_after_the_last_whatever_was_removed_and_added_meanwhile(looks_max: int) -> None:
    dead = set[int]()
    with tiny_chunks():
        index = filled(dict.fromkeys(range(1, 61), "t"), dead.__contains__)
        found: list[int] = []
        for number, part in enumerate(index.parts(Match(exact="t"), below=61, looks_max=looks_max)):
            assert len(part) <= looks_max
            found += part
            dead.update(part)
            index.add("s", 1_000 + number)
            index.add("t", 2_000 + number)
            index.sweep(10)
            check_invariants(index)
    assert found == list(range(1, 61))
