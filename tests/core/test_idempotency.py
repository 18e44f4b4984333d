"""The key window against a plain dict, with blocks and tables made tiny so that every border is met."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core.state import idempotency
from tenure.core.state.idempotency import KeyEntry, KeyWindow, digest_key, digest_payload
from tenure.errors import Corrupt


@contextmanager
def tiny_blocks_and_tables() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idempotency, "_BLOCK_SHIFT", 2)
        patch.setattr(idempotency, "_BLOCK_ROWS", 4)
        patch.setattr(idempotency, "_INDEX_MASK", 3)
        patch.setattr(idempotency, "_TABLES_COUNT", 2)
        yield


def put(window: KeyWindow, key: str, *, expires_ms: int, first_seq: int = 7, count: int = 3) -> None:
    window.put(digest_key(key), first_seq=first_seq, count=count, payload_digest=9, expires_ms=expires_ms)


def test_a_key_is_remembered_with_what_it_got_until_its_time_has_passed() -> None:
    window = KeyWindow()
    put(window, "a", expires_ms=100)
    assert window.get(digest_key("a"), 0) == KeyEntry(first_seq=7, count=3, payload_digest=9, expires_ms=100)
    assert window.get(digest_key("a"), 100) is not None
    assert window.get(digest_key("a"), 101) is None
    assert window.get(digest_key("b"), 0) is None
    assert window.expire(100) == 0
    assert window.expire(101) == 1
    assert len(window) == 0
    assert window.get(digest_key("a"), 0) is None


def test_a_key_used_again_leads_to_the_newer_append() -> None:
    window = KeyWindow()
    put(window, "a", expires_ms=100, first_seq=1)
    put(window, "b", expires_ms=100)
    put(window, "a", expires_ms=300, first_seq=2)
    assert len(window) == 2
    assert window.expire(200) == 1
    entry = window.get(digest_key("a"), 200)
    assert entry is not None
    assert entry.first_seq == 2


def test_a_shortened_window_expires_keys_behind_an_older_longer_one() -> None:
    window = KeyWindow()
    put(window, "long", expires_ms=10**12)
    put(window, "short", expires_ms=50)
    window.expire(51)
    assert window.get(digest_key("short"), 51) is None
    assert window.get(digest_key("long"), 51) is not None


def test_one_long_lived_key_does_not_keep_a_million_short_ones() -> None:
    window = KeyWindow()
    put(window, "long", expires_ms=10**12)
    for now_ms in range(20_000):
        window.expire(now_ms)
        put(window, f"k{now_ms}", expires_ms=now_ms + 100)
    assert len(window) < 4 * idempotency._BLOCK_ROWS
    assert len(window._blocks) < 5
    assert sum(len(table) for table in window._tables.values()) < 12 * idempotency._TABLES_COUNT
    assert window.get(digest_key("long"), 20_000) is not None
    assert window.expire(10**13) > 0
    assert len(window) == len(window._blocks) == len(window._tables) == 0


def test_every_value_goes_up_to_its_width() -> None:
    window = KeyWindow()
    most = KeyEntry(first_seq=2**64 - 1, count=2**32 - 1, payload_digest=2**64 - 1, expires_ms=2**64 - 1)
    window.put(
        digest_key("a"),
        first_seq=most.first_seq,
        count=most.count,
        payload_digest=most.payload_digest,
        expires_ms=most.expires_ms,
    )
    assert window.get(digest_key("a"), 2**64 - 1) == most


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "expire", "reload"]),
        st.integers(0, 30),
        st.sampled_from([0, 3, 3, 3, 10, 60]),
        st.integers(0, 2),
    ),
    max_size=120,
)


@settings(max_examples=200)
@given(STEPS)
def test_the_window_agrees_with_a_dict(steps: list[tuple[str, int, int, int]]) -> None:
    with tiny_blocks_and_tables():
        window, naive, now_ms = KeyWindow(), dict[int, KeyEntry](), 1
        for number, (step, key, window_ms, pause_ms) in enumerate(steps):
            now_ms += pause_ms
            if step == "put":
                naive.pop(key, None)
                naive[key] = KeyEntry(number, key, number * 3, now_ms + window_ms)
                window.put(
                    digest_key(str(key)),
                    first_seq=number,
                    count=key,
                    payload_digest=number * 3,
                    expires_ms=now_ms + window_ms,
                )
            elif step == "expire":
                window.expire(now_ms)
            else:
                window = KeyWindow.load(window.dump(now_ms=now_ms))
            alive = {key: entry for key, entry in naive.items() if entry.expires_ms >= now_ms}
            found = {key: window.get(digest_key(str(key)), now_ms) for key in range(31)}
            assert {key: entry for key, entry in found.items() if entry} == alive
            assert len(window) >= len(alive)
            packed, _ = msgspec.msgpack.decode(window.dump(now_ms=now_ms), type=tuple[bytes, bytes])
            kept = [packed[at : at + 16] for at in range(0, len(packed), 36)]
            assert kept == [digest_key(str(key)) for key in alive]


@given(st.lists(st.integers(0, 3), max_size=60))
def test_the_count_is_exact_while_the_window_is_not_changed(pauses: list[int]) -> None:
    with tiny_blocks_and_tables():
        window, expiries, now_ms = KeyWindow(), list[int](), 0
        for number, pause_ms in enumerate(pauses):
            now_ms += pause_ms
            window.expire(now_ms)
            put(window, str(number), expires_ms=now_ms + 5)
            expiries.append(now_ms + 5)
            assert len(window) == sum(expires_ms >= now_ms for expires_ms in expiries)


def test_a_dump_depends_on_what_is_remembered_and_not_on_how_it_came_about() -> None:
    source = random.Random(1)
    seasoned, fresh = KeyWindow(), KeyWindow()
    for number in range(5000):
        seasoned.expire(number)
        put(seasoned, f"k{source.randrange(3000)}", expires_ms=number + 700, first_seq=number)
    for number in range(4301, 5000):
        put(fresh, f"n{number}", expires_ms=number + 700)
        put(seasoned, f"n{number}", expires_ms=number + 700)
    restored = KeyWindow.load(seasoned.dump(now_ms=5000))
    assert restored.dump(now_ms=5000) == seasoned.dump(now_ms=5000)
    assert restored.dump(now_ms=5600) == seasoned.dump(now_ms=5600)
    assert KeyWindow.load(fresh.dump(now_ms=0)).dump(now_ms=0) == fresh.dump(now_ms=0)
    assert len(restored) <= len(seasoned)


def test_a_full_table_and_full_blocks_lose_nothing() -> None:
    window = KeyWindow()
    for number in range(30_000):
        put(window, f"k{number}", expires_ms=10**6, first_seq=number)
    assert len(window) == 30_000
    for number in range(0, 30_000, 7):
        entry = window.get(digest_key(f"k{number}"), 0)
        assert entry is not None
        assert entry.first_seq == number
    assert all(window.get(digest_key(f"x{number}"), 0) is None for number in range(1000))


def test_digests_tell_keys_and_payloads_apart() -> None:
    assert len(digest_key("é")) == idempotency.KEY_DIGEST_BYTES
    assert digest_key("a") != digest_key("b")
    assert digest_payload(b"ab", b"c") != digest_payload(b"a", b"bc")
    assert digest_payload(b"") != digest_payload()
    assert 0 <= digest_payload(b"x") < 2**64


def test_digests_are_pinned_because_they_are_logged() -> None:
    assert digest_key("order-1").hex() == "56eea00bbcad2f0a2ca2cc13492405d7"
    assert digest_payload(b"one", b"two") == 10868262871943428168


@pytest.mark.parametrize(
    "dumped",
    [b"", b"\xff", msgspec.msgpack.encode([b"x" * 36, b""]), msgspec.msgpack.encode([b"x" * 35, b"x" * 8])],
)
def test_a_damaged_dump_is_called_corrupt(dumped: bytes) -> None:
    with pytest.raises(Corrupt):
        KeyWindow.load(dumped)


def short_window_after_a_long_one(*, expires_ms: int) -> KeyWindow:
    """Blocks of four: the head in the second one on a long-lived key, then blocks that expire before it, then an open
    one.
    """
    window = KeyWindow()
    for number in range(4):
        put(window, f"first{number}", expires_ms=1)
    put(window, "long", expires_ms=10**6)
    for number in range(3 + 8):
        put(window, f"short{number}", expires_ms=expires_ms)
    put(window, "open", expires_ms=10**6)
    assert window.expire(2) == 4
    return window


def expire_often(window: KeyWindow, now_ms: int) -> None:
    for _ in range(12):  # each call looks at one block, in turns
        window.expire(now_ms)


def test_blocks_after_the_head_are_freed_as_soon_as_all_their_keys_have_expired() -> None:
    with tiny_blocks_and_tables():
        window = short_window_after_a_long_one(expires_ms=50)
        expire_often(window, 50)
        assert len(window) == 13, "a key lives until its time has passed, not until it has come"
        assert all(window.get(digest_key(f"short{number}"), 50) is not None for number in range(11))
        expire_often(window, 51)
        assert len(window) == 1 + 3 + 1, "the two whole blocks are gone; the head's own is not looked at"


def test_a_freed_block_does_not_count_its_replaced_keys_again() -> None:
    with tiny_blocks_and_tables():
        window = short_window_after_a_long_one(expires_ms=50)
        put(window, "short5", expires_ms=10**6)
        expire_often(window, 51)
        assert len(window) == 1 + 3 + 1 + 1
        assert window.get(digest_key("short5"), 51) is not None
