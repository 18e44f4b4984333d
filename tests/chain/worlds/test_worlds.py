"""Simulated worlds of the chain: whatever befalls machines and store, nothing happens that must not."""

from __future__ import annotations

import pytest

from tests.chain.worlds.runs import run, shrink
from tests.chain.worlds.world import World
from tests.lives.anomaly import Anomaly

WORLDS = 110
BLOCKS = 8
LONG_BLOCKS = 250
LONG_WORLDS = 400


def check_worlds(seeds: range, *, is_whole: bool | None = None) -> None:
    for seed in seeds:
        found = run(seed, is_whole=is_whole)
        assert found is None, str(shrink(found, is_whole=is_whole))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_no_world_is_anything_lost_or_told_wrong(block: int) -> None:
    check_worlds(range(block * WORLDS, (block + 1) * WORLDS))


def test_in_no_world_of_whole_logs_is_anything_lost_or_told_wrong() -> None:
    check_worlds(range(1_000, 1_040), is_whole=True)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(LONG_BLOCKS))
def test_in_many_more_worlds_neither(block: int) -> None:
    check_worlds(range(10_000 + block * LONG_WORLDS, 10_000 + (block + 1) * LONG_WORLDS))


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_seed_gives_the_same_world_twice(is_whole: bool) -> None:
    worlds = []
    for _ in range(2):
        world = World(3, is_whole=is_whole)
        try:
            world.play()
        except Anomaly as anomaly:
            world.say(str(anomaly))
        worlds.append((world.story, world.witness.acked, world.store.calls))
    assert worlds[0] == worlds[1]
