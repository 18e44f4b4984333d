"""A link is one object, told from any other by its checksum, and never changed by packing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.chain.link import FORMAT, GRANT_MS_MAX, Kind, Link, Run, digest
from tenure.errors import Corrupt

LINK = Link(
    Kind.DATA,
    b"L" * 16,
    7,
    12,
    b"p" * 16,
    b"n" * 16,
    b"d" * 16,
    log_ms=1_700_000_000_000,
    beat_ms=500,
    grant_ms=1_500,
    first_batch=40,
    last_batch=42,
    url="http://a:4000",
    runs=[Run(3, 900, b"the end"), Run(4, 0, b"a head"), Run(4, 6, b"")],
)


def test_what_was_packed_is_unpacked():
    assert Link.unpack(LINK.pack(), "key") == LINK
    fence = LINK._replace(kind=Kind.FENCE, runs=[], is_released=False)
    assert Link.unpack(fence.pack(), "key") == fence
    assert Link.unpack(LINK._replace(is_released=True).pack(), "key").is_released


@given(st.lists(st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=5))
def test_any_runs_are_kept(runs: list[tuple[int, int, bytes]]):
    link = LINK._replace(runs=[Run(*run) for run in runs])
    assert Link.unpack(link.pack(), "key") == link


def test_a_grant_is_never_told_shorter_than_it_is():
    for grant_ms in (0, 1, 9, 10, 11, 1_501, GRANT_MS_MAX - 1, GRANT_MS_MAX):
        told_ms = Link.unpack(LINK._replace(grant_ms=grant_ms).pack(), "key").grant_ms
        assert grant_ms <= told_ms < grant_ms + 10


def test_a_flipped_bit_anywhere_is_damage_that_names_its_key():
    data = LINK.pack()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt, match="chain/7/12"):
            Link.unpack(bytes(flipped), "chain/7/12")


def test_a_part_of_a_link_is_damage():
    data = LINK.pack()
    for size in range(len(data)):
        with pytest.raises(Corrupt):
            Link.unpack(data[:size], "key")


def test_a_newer_format_is_refused_by_name():
    data = bytearray(LINK.pack())
    data[8:12] = (FORMAT + 1).to_bytes(4, "little")
    with pytest.raises(Corrupt) as caught:
        Link.unpack(bytes(data), "key")
    assert caught.value.code == "format_too_new"


def test_links_that_differ_have_other_digests():
    assert digest(LINK.pack()) == digest(LINK.pack())
    assert digest(LINK.pack()) != digest(LINK._replace(nonce=b"m" * 16).pack())
