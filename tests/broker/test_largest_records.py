"""Every command with records of the largest size that is allowed, and destinations that have room for one.

A seeded walk over the commands: each step takes the longest prefix that fits, no turn and no answer goes over its
budget, no try is used up by what was not sent, and once there is room everything drains.
"""

from __future__ import annotations

import pytest

from tests.broker.largest_walk import Walk
from tests.broker.largest_world import measured

STEPS = 80
WALKS = 8


def check_walks(seeds: range) -> None:
    with measured():
        for seed in seeds:
            walk = Walk(seed)
            try:
                walk.run(STEPS)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            finally:
                walk.world.close()


def test_whatever_is_done_with_the_largest_records_fits_and_drains() -> None:
    check_walks(range(WALKS))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(40))
def test_many_more_walks_with_the_largest_records(block: int) -> None:
    check_walks(range(1_000 + 10 * block, 1_010 + 10 * block))
