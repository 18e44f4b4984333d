"""Lives of whole members: whatever befalls machines and store, nothing is lost, and all fold to one state."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.chain.members.life import Life
from tests.chain.members.runs import run, shrink
from tests.chain.members.variants import VARIANTS

LIVES = 40
BLOCKS = 8
LONG_LIVES = 200
LONG_BLOCKS = 250
VARIANT_LIVES_MAX = 40


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()  # what members log of their stores is part of the life
    yield
    logging.disable(logging.NOTSET)


def check_lives(seeds: range) -> None:
    for seed in seeds:
        found = run(seed)
        assert found is None, str(shrink(found))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_no_life_is_anything_lost_and_all_members_fold_to_one_state(block: int) -> None:
    check_lives(range(block * LIVES, (block + 1) * LIVES))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(LONG_BLOCKS))
def test_in_many_more_lives_neither(block: int) -> None:
    check_lives(range(10_000 + block * LONG_LIVES, 10_000 + (block + 1) * LONG_LIVES))


@pytest.mark.parametrize("name", [*VARIANTS])
def test_a_broken_member_is_found(name: str) -> None:
    """A life counts in which the broken member is found, and nothing with the whole one."""
    variant = VARIANTS[name]

    def is_found(seed: int) -> bool:
        with variant.applied():
            found = run(seed, traits=variant.traits)
        return found is not None and run(seed, traits=variant.traits) is None

    assert any(is_found(seed) for seed in range(VARIANT_LIVES_MAX))


def test_a_seed_gives_the_same_life_twice() -> None:
    lives = [Life(3), Life(3)]
    for life in lives:
        life.play()
    first, second = lives
    assert first.story == second.story
    assert first.store.calls == second.store.calls
    assert list(first.shared.history) == list(second.shared.history)
