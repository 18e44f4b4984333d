"""In how many tasks a range is read."""

from __future__ import annotations

import pytest

from tenure.buffer import Descriptor
from tenure.spark.jobs.plan import Planned
from tenure.spark.reader.reader import parts_of
from tenure.spark.reader.settings import ReaderSettings

MIB = 1 << 20


def planned(count: int, size: int) -> Planned:
    """A range of so many batches of one size."""
    return Planned.of([Descriptor(seq, f"data/{seq}", size, 1, "", "p", seq, 0, 0, "b") for seq in range(count)])


@pytest.mark.parametrize(
    ("count", "size", "cores", "parts"),
    [
        (1, 100, 2, 1),  # a task costs more than the batch
        (100, 1_000, 64, 1),
        (1_000, 1_000, 2, 2),  # small ones are alike in cost: one task per core
        (1_000, 1_000, 64, 7),  # and no more than there is work for
        (4_096, 12_000, 2, 2),
        (16, 16 * MIB, 2, 4),  # large ones may differ: two per core
        (16, 16 * MIB, 64, 32),
    ],
)
def test_there_are_as_many_tasks_as_there_is_work_for(count: int, size: int, cores: int, parts: int):
    assert parts_of(planned(count, size), ReaderSettings(), cores=cores) == parts
