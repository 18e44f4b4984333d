"""Broken variants of the chain: the worlds must find each of them, or they would find nothing in the product either."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Iterator

import pytest

from tenure.chain.chain import Chain
from tenure.chain.home import create_home
from tenure.chain.keys import link_key, mark_key
from tenure.chain.leadership import Leadership, challenge
from tenure.chain.link import Kind, Link, Run
from tenure.chain.place import Place
from tenure.chain.settings import ChainSettings
from tenure.errors import Indeterminate, NotLeader
from tenure.objects.metered import Metered, StoreMetrics
from tenure.objects.retrying import RetryingStore
from tenure.testing import ManualClock
from tenure.testing.simstore import SimStore
from tests.chain.worlds.runs import run
from tests.chain.worlds.variants import VARIANTS, verdict_without_look

WORLDS_MAX = 100
LOG = b"L" * 16


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


async def old_memory_at_a_void_fence() -> Leadership:
    """Return a leader set back to before a link that was committed, freed, and replaced by a fence that is void.

    Only this row of events shows why the mark is looked for before "nothing happened" is said. It takes a machine that
    is set back to the very slot that a late candidate of another directory fences: the worlds do not meet it by chance.
    """
    sim, settings, clock = SimStore(), ChainSettings(silence_ms=3, hint_ms=1, backoff_ms=0), ManualClock()
    store = RetryingStore(Metered(sim, StoreMetrics()), settings)
    chain = Chain(store, LOG, settings)
    await create_home(store, LOG, epoch=0, nonce=b"g" * 16, url="", now_ms=1)
    place = Place(0, 0)
    async for step in chain.follow(place):
        place = step.after
    leader = await challenge(chain, place, nonce=b"a" * 16, directory=b"A" * 16, url="", clock=clock)
    assert leader is not None
    old, slot = copy.copy(leader), leader.place
    await leader.ship([Run(1, 0, b"x")], first_batch=1, last_batch=1)
    assert await challenge(chain, leader.place, nonce=b"b" * 16, directory=b"B" * 16, url="", clock=clock) is not None
    sim.objects[mark_key(slot.epoch)] = (b"", 0)
    void = Link(Kind.FENCE, LOG, slot.epoch + 1, slot.number, slot.digest, b"c" * 16, b"C" * 16)
    sim.objects[link_key(slot.epoch, slot.number)] = (void.pack(), 0)
    return old


def test_nothing_changed_without_a_look_for_the_mark_would_be_false(monkeypatch: pytest.MonkeyPatch) -> None:
    async def repeat() -> None:
        old = await old_memory_at_a_void_fence()
        await old.ship([Run(1, 0, b"x")], first_batch=1, last_batch=1)

    with pytest.raises(Indeterminate):
        asyncio.run(repeat())
    monkeypatch.setattr(Leadership, "_verdict", verdict_without_look)
    with pytest.raises(NotLeader):
        asyncio.run(repeat())
