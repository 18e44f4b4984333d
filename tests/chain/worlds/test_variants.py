"""Broken variants of the chain: the worlds must find each of them, or they would find nothing in the product either."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.chain.worlds.runs import run
from tests.chain.worlds.variants import VARIANTS

WORLDS_MAX = 150


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", [*VARIANTS])
def test_a_broken_variant_is_found(name: str) -> None:
    variant = VARIANTS[name]
    with variant.applied():
        assert any(run(seed, traits=variant.traits, is_whole=False) is not None for seed in range(WORLDS_MAX))
