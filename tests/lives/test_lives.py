"""Random lives of a whole broker: whatever callers, time and the disk do, nothing happens that must not."""

from __future__ import annotations

import pytest

from tests.lives.runs import run, shrink

STEPS = 150


def check_lives(seeds: range) -> None:
    for seed in seeds:
        found = run(seed, steps=STEPS)
        assert found is None, str(shrink(found))


@pytest.mark.parametrize("block", range(6))
def test_in_no_life_does_anything_happen_that_must_not(block: int) -> None:
    """Faults 1, 2, 7, 12-15, 20-25, 28, 38-40, 42-44."""
    check_lives(range(block * 5, block * 5 + 5))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_in_many_more_lives_neither(block: int) -> None:
    check_lives(range(1_000 + block * 30, 1_030 + block * 30))


def test_a_seed_tells_the_same_life_twice() -> None:
    from tests.lives.fates import live
    from tests.lives.life import Life
    from tests.lives.thresholds import small_thresholds

    stories = []
    for _ in range(2):
        with small_thresholds():
            life = Life(3, without=("slow",))
            try:
                live(life, list(range(60)))
            finally:
                stories.append(life.story)
    assert stories[0] == stories[1]
