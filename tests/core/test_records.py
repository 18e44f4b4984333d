"""Records laid out for a frame and read back: byte for byte, with no table where none is needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.contract.records import Record
from tenure.core.records import Extras, ends_of, pack, slice_blob, unpack

RECORD = st.builds(
    Record,
    data=st.binary(max_size=40),
    tag=st.none() | st.text(max_size=10),
    node=st.none() | st.text(min_size=1, max_size=10),
    meta=st.none() | st.binary(max_size=20),
    hops=st.integers(0, 16),
)


def read_back(records: list[bytes | Record]) -> list[tuple[bytes, Extras]]:
    packed = pack(records)
    assert packed.count == len(records)
    ends = ends_of(packed.ends, len(packed.blobs))
    blobs = memoryview(packed.blobs)
    return [unpack(slice_blob(ends, blobs, index), packed.plain) for index in range(packed.count)]


@given(st.lists(RECORD | st.binary(max_size=40), min_size=1, max_size=20))
def test_what_is_packed_can_be_read_back(records: list[bytes | Record]) -> None:
    for record, (data, extras) in zip(records, read_back(records), strict=True):
        if isinstance(record, bytes):
            assert (data, extras) == (record, Extras())
        else:
            assert data == record.data
            assert extras == Extras(record.tag, record.node, record.meta, record.hops)


def test_bare_data_is_its_own_blob() -> None:
    packed = pack([b"one", b"", b"three"])
    assert (packed.plain, packed.blobs) == (True, b"onethree")


def test_a_record_with_nothing_but_data_is_bare_too() -> None:
    assert pack([Record(data=b"one"), b"two"]) == pack([b"one", b"two"])


def test_one_record_that_says_more_gives_all_of_its_call_a_header() -> None:
    packed = pack([b"one", Record(data=b"two", tag="")])
    assert not packed.plain
    assert [data for data, _ in read_back([b"one", Record(data=b"two", tag="")])] == [b"one", b"two"]


def test_a_record_that_is_alone_needs_no_table() -> None:
    packed = pack([b"alone"])
    assert (packed.ends, packed.count) == (b"", 1)
    assert list(ends_of(packed.ends, len(packed.blobs))) == [5]


def test_a_delay_or_a_unique_key_is_not_part_of_the_record() -> None:
    """They belong to the event: a job that came due reads like any other."""
    assert pack([Record(data=b"1", delay_ms=5, unique_key="u")]).plain
