"""Look at a home without taking part: where its chain ends, who leads, and whether every link is what it should be."""

from __future__ import annotations

from typing import NamedTuple

from tenure.chain.chain import Chain
from tenure.chain.hint import HintContent, read_hint
from tenure.chain.home import HomeFacts, find_home
from tenure.chain.link import Link
from tenure.chain.place import Place
from tenure.chain.settings import ChainSettings
from tenure.errors import NotFound
from tenure.objects.retrying import RetryingStore

__all__ = ["Walked", "walk_home"]


class Walked(NamedTuple):
    """What a walk over a whole chain found."""

    facts: HomeFacts
    links: int
    fences: int
    link_bytes: int
    #: Where the chain ends, and its last link.
    place: Place
    last: Link | None
    #: The hint of the last leader; None where it has given up, or never wrote one.
    leader: HintContent | None


async def walk_home(store: RetryingStore, settings: ChainSettings) -> Walked:
    """Read and prove every link of a home, from its beginning to its end.

    Raises NotFound where there is no home, Corrupt and Conflict as `Chain.follow`.
    """
    facts = await find_home(store)
    if facts is None:
        raise NotFound(f"there is no home under {store.store.url}", code="no_home", url=store.store.url)
    chain, place = Chain(store, bytes.fromhex(facts.log_id), settings), facts.beginning
    links = fences = size = 0
    last: Link | None = None
    async for step in chain.follow(place):
        place, last = step.after, step.link._replace(runs=())
        fences += step.link.is_fence
        links += not step.link.is_fence
        size += sum(len(run.data) for run in step.link.runs)
    leader = await read_hint(store, last.nonce.hex()) if last is not None else None
    return Walked(facts, links, fences, size, place, last, leader)
