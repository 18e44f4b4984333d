"""Simulated worlds of named producers: whatever befalls them, nothing acknowledged is lost, nothing is stored twice."""

from __future__ import annotations

import pytest

from tests.buffer.worlds.runs import run
from tests.buffer.worlds.variants import VARIANTS
from tests.buffer.worlds.world import World

WORLDS = 150
LONG_BLOCKS = 20
LONG_WORLDS = 500


def check_worlds(seeds: range) -> None:
    for seed in seeds:
        anomaly = run(seed)
        assert anomaly is None, f"seed {seed}: {anomaly}"


def test_in_no_world_is_anything_lost_or_doubled() -> None:
    check_worlds(range(WORLDS))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(LONG_BLOCKS))
def test_in_ten_thousand_worlds_neither(block: int) -> None:
    check_worlds(range(1 + block * LONG_WORLDS, 1 + (block + 1) * LONG_WORLDS))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_rule_shows_in_some_world(name: str) -> None:
    with VARIANTS[name]():
        assert any(run(seed) is not None for seed in range(1, WORLDS))


def test_a_seed_gives_the_same_world_twice() -> None:
    worlds = []
    for _ in range(2):
        world = World(3)
        world.play()
        worlds.append((world.witness.acked, world.store.calls))
    assert worlds[0] == worlds[1]
