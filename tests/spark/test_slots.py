"""Each name has a number of its own, whatever the names are; what Spark makes of it is seen in `test_ingest`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import Invalid
from tenure.spark.slots import Slots


@given(st.sets(st.text(max_size=40), min_size=1, max_size=200))
def test_names_have_different_numbers_below_the_size(names: set[str]):
    slots = Slots(sorted(names))
    numbers = {slots.of(name) for name in names}
    assert len(numbers) == len(names)
    assert min(numbers) >= 0
    assert max(numbers) < slots.size


def test_the_numbers_of_many_names_are_not_many_more_than_the_names():
    assert Slots([f"{number:026}.parquet" for number in range(4_096)]).size < 4 * 4_096


def test_names_of_one_checksum_are_refused():
    with pytest.raises(Invalid) as caught:
        Slots(["01KFK08XHZTDNPP9ZJDFZC0SWN.parquet", "01KC9VETQQM12WB7RQMX1K4V44.parquet"])
    assert caught.value.code == "names_collide"
