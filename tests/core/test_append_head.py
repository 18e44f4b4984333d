"""The head of an encoded append, found without its payload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.append_head import AppendHead, read_head
from tenure.core.events import Appended, AppendExtra, encode
from tenure.core.records import pack
from tenure.errors import Corrupt


def head_of(body: bytes) -> AppendHead:
    return read_head(lambda start, count: body[start : start + count], len(body))


@given(
    numbers=st.tuples(*[st.integers(0, 2**63)] * 4),
    blobs=st.lists(st.binary(max_size=300), min_size=1, max_size=40),
    extra=st.sampled_from([None, AppendExtra(tagged=True, client=("c", 7))]),
    plain=st.booleans(),
)
def test_the_head_says_what_the_whole_event_says(
    numbers: tuple[int, int, int, int], blobs: list[bytes], extra: AppendExtra | None, plain: bool
) -> None:
    at_ms, topic, ts_ms, first_seq = numbers
    packed = pack(blobs)
    event = Appended(at_ms, topic, ts_ms, first_seq, len(blobs), packed.ends, packed.blobs, plain, extra)
    body = encode(event)
    head = head_of(body)
    assert (head.first_seq, head.ts_ms, head.ends, head.plain) == (first_seq, ts_ms, packed.ends, plain)
    assert body[head.blobs_at : head.blobs_at + head.blobs_bytes] == packed.blobs


def test_a_wall_time_before_the_epoch_is_read_too() -> None:
    assert head_of(encode(Appended(1, 1, -5_000, 1, 1, b"", b"x", True))).ts_ms == -5_000


@pytest.mark.parametrize(
    "body",
    [b"", b"\x99", b"\x93\x01\x02\x03", b"\x99" + b"\xc0" * 40, encode(Appended(1, 1, 1, 1, 1, b"", b"x", True))[:9]],
)
def test_what_is_no_append_is_refused(body: bytes) -> None:
    with pytest.raises(Corrupt):
        head_of(body)
