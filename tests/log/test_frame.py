"""The bytes of a frame, and finding frames again among bytes that are not."""

from __future__ import annotations

import struct

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tenure.log.frame import FIRST, HEADER_BYTES, LAST, checksum, encode_batch, find_frames, nonzero_end, unpack_header

entries = st.lists(
    st.tuples(st.integers(1, 255), st.integers(0, 2**32 - 1), st.binary(max_size=100)), min_size=1, max_size=5
)


def reader(data: bytes):
    return lambda count, offset: data[offset : offset + count]


def test_a_frame_lies_on_disk_as_documented() -> None:
    data, crc = encode_batch([(20, 7, b"body")], 99, epoch=3, batch=41, synced_batch=40)
    rest = struct.pack("<IQQBBHI", 3, 41, 40, 20, FIRST | LAST, 0, 7) + b"body"
    assert crc == crc32c(rest, 40 ^ 99)
    assert data == struct.pack("<II", 40, crc) + rest
    assert HEADER_BYTES == 36


def test_only_the_first_and_the_last_frame_of_a_batch_are_flagged() -> None:
    data, _ = encode_batch([(20, 1, b"")] * 3, 0, epoch=1, batch=1, synced_batch=0)
    assert [unpack_header(data, at)[6] for at in (0, 36, 72)] == [FIRST, 0, LAST]


@given(entries, st.integers(0, 2**32 - 1), st.integers(1, 2**63), st.binary(max_size=60), st.binary(max_size=60))
def test_frames_are_found_behind_any_bytes(batch, salt: int, number: int, before: bytes, behind: bytes) -> None:
    data, _ = encode_batch(batch, salt, epoch=1, batch=number, synced_batch=number - 1)
    noise = before + data + behind
    found = list(find_frames(reader(noise), 0, end=len(noise), salt=salt, batch=max(1, number - 2)))
    assert [(frame.kind, frame.topic) for frame in found] == [(kind, topic) for kind, topic, _ in batch]
    assert found[0].offset == len(before)


@given(entries, st.data())
def test_any_flipped_bit_fails_the_checksum(batch, data: st.DataObject) -> None:
    encoded, _ = encode_batch(batch[:1], 7, epoch=1, batch=9, synced_batch=8)
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    broken = bytearray(encoded)
    broken[bit >> 3] ^= 1 << (bit & 7)
    length, crc, *_ = unpack_header(broken)
    assert length != len(broken) or checksum(bytes(broken), 7) != crc


def test_frames_of_earlier_batches_and_other_segments_are_passed_over() -> None:
    data, _ = encode_batch([(20, 1, b"x")], 5, epoch=1, batch=10, synced_batch=9)
    assert not list(find_frames(reader(data), 0, end=len(data), salt=5, batch=11))
    assert not list(find_frames(reader(data), 0, end=len(data), salt=6, batch=10))
    assert list(find_frames(reader(data), 0, end=len(data), salt=5, batch=10))


def test_a_frame_across_the_border_of_two_reads_is_found() -> None:
    frame, _ = encode_batch([(20, 1, b"x" * 500)], 5, epoch=1, batch=10, synced_batch=9)
    for start in range((1 << 22) - 600, (1 << 22) + 2, 37):
        data = bytes(start) + frame + bytes(100)
        assert [found.offset for found in find_frames(reader(data), 0, end=len(data), salt=5, batch=10)] == [start]


def test_the_end_of_what_is_not_zero_is_found() -> None:
    assert nonzero_end(reader(bytes(100)), 10, end=100) == 10
    assert nonzero_end(reader(b"\1" + bytes(99)), 10, end=100) == 10
    assert nonzero_end(reader(bytes(50) + b"\1" + bytes(49)), 10, end=100) == 51
    large = bytes(5 << 20) + b"\1"
    assert nonzero_end(reader(large), 0, end=len(large)) == len(large)
