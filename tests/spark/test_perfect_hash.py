"""Each key has a number of its own, and each file of a range a key; what Spark makes of it is in `test_ingest`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.buffer.batch.format import Descriptor
from tenure.errors import Invalid
from tenure.spark.reader.jvm import PerfectHash, _keys

TWINS = ("01KFK08XHZTDNPP9ZJDFZC0SWN.parquet", "01KC9VETQQM12WB7RQMX1K4V44.parquet")  # of one CRC-32


def batch(name: str, size: int) -> Descriptor:
    return Descriptor(0, f"data/{name}", size, 1, "", "", 0, 0, 0, "")


@given(st.sets(st.integers(0, (1 << 63) - 1), min_size=1, max_size=200))
def test_keys_have_different_numbers_below_the_size(keys: set[int]):
    slots = PerfectHash(sorted(keys))
    numbers = {slots.of(key) for key in keys}
    assert len(numbers) == len(keys)
    assert min(numbers) >= 0
    assert max(numbers) < slots.size


def test_the_numbers_of_many_keys_are_not_many_more_than_the_keys():
    assert PerfectHash([number * 7_919 % 1_000_003 for number in range(4_096)]).size < 4 * 4_096


def test_files_are_told_apart_by_their_sizes_or_else_by_their_names():
    assert _keys([batch("a", 10), batch("b", 20)]) == ("_metadata.file_size", [10, 20])
    expression, keys = _keys([batch("a", 10), batch("b", 10)])
    assert "file_name" in expression
    assert len(set(keys)) == 2


def test_names_of_one_checksum_are_refused_only_where_sizes_do_not_tell():
    assert _keys([batch(name, size) for name, size in zip(TWINS, (10, 20), strict=True)])[1] == [10, 20]
    with pytest.raises(Invalid) as caught:
        _keys([batch(name, 10) for name in TWINS])
    assert caught.value.code == "names_collide"
