"""Random lives of a whole broker: whatever callers, time and the disk do, nothing happens that must not."""

from __future__ import annotations

import pytest

from tests.lives.anomaly import Anomaly
from tests.lives.fates import live
from tests.lives.life import Life
from tests.lives.runs import run, shrink
from tests.lives.thresholds import small_thresholds

STEPS = 250
LIVES = 10


def check_lives(seeds: range) -> None:
    for seed in seeds:
        found = run(seed, steps=STEPS)
        assert found is None, str(shrink(found))


def test_in_no_life_does_anything_happen_that_must_not() -> None:
    """Faults 1, 2, 7, 12-15, 20-25, 28, 38-40, 42-44."""
    check_lives(range(LIVES))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(300))
def test_in_many_more_lives_neither(block: int) -> None:
    check_lives(range(10_000 + block * LIVES, 10_000 + (block + 1) * LIVES))


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_tells_the_same_life_twice(seed: int) -> None:
    lives = []
    for _ in range(2):
        with small_thresholds():
            life = Life(seed)
            try:
                live(life, list(range(80)))
            except Anomaly as anomaly:
                life.say(str(anomaly))
            lives.append((life.story, life.witness.noted))
            life.loop.die()
    assert lives[0] == lives[1]
