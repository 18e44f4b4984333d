"""Look at a home without taking part: where its chain ends, who leads, and whether everything is what it should be."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from tenure.chain.bootstrap import read_segment
from tenure.chain.chain import Chain, Freed
from tenure.chain.hint import Hint, read_hint
from tenure.chain.home import HomeFacts, find_home
from tenure.chain.keys import CHAIN, PARTS
from tenure.chain.link import Link
from tenure.chain.place import Place
from tenure.chain.settings import ChainSettings
from tenure.chain.space import Space
from tenure.chain.stored_checkpoint import CHECKPOINTS, SEGMENTS, StoredCheckpoint
from tenure.errors import NotFound
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo, ObjectMissing

__all__ = ["HomeStatus", "Verified", "home_status", "verify_home"]


class HomeStatus(NamedTuple):
    """What a home holds, by its listings: they may lag behind, and prove nothing."""

    facts: HomeFacts
    links: int
    link_bytes: int
    segments: int
    segment_bytes: int
    checkpoints: int
    #: The newest checkpoint and when it was stored, by the store's clock; None where there is none.
    newest: tuple[StoredCheckpoint, int] | None
    #: The newest link, and the hint of its leader; None where that has given up, or never wrote one.
    last: Link
    leader: Hint | None


class Verified(NamedTuple):
    """What was read and proven; everything else raised Corrupt."""

    facts: HomeFacts
    links: int
    fences: int
    link_bytes: int
    segments: int
    checkpoints: int
    #: Where the chain ends.
    place: Place


async def home_status(store: RetryingStore, settings: ChainSettings) -> HomeStatus:
    """Return what a home holds, at the cost of its listings. Raises NotFound where there is no home, Corrupt."""
    facts = await _find(store)
    sizes: dict[str, list[int]] = {prefix: [] for prefix in (CHAIN, PARTS, SEGMENTS, CHECKPOINTS)}
    newest: dict[str, ObjectInfo] = {}
    for prefix, found in sizes.items():
        async for info in store.list_objects(prefix):
            found.append(info.bytes)
            newest[prefix] = info
    key = newest[CHAIN].key
    last = Link.unpack(await store.get(key, settings.link_object_bytes_max), key)._replace(runs=())
    leader = await read_hint(store, last.directory.hex())
    space = Space(Chain(store, bytes.fromhex(facts.log_id), settings))
    link_bytes = sum(sizes[CHAIN]) + sum(sizes[PARTS])
    return HomeStatus(
        facts,
        *(len(sizes[CHAIN]), link_bytes, len(sizes[SEGMENTS]), sum(sizes[SEGMENTS]), len(sizes[CHECKPOINTS])),
        *(await _peek(space, newest.get(CHECKPOINTS)), last, leader),
    )


async def _peek(space: Space, info: ObjectInfo | None) -> tuple[StoredCheckpoint, int] | None:
    """Return what the newest checkpoint says of itself; None where there is none, or it was just collected."""
    with suppress(ObjectMissing):
        return None if info is None else (await space.peek(info.key), info.modified_ms)
    return None


async def verify_home(store: RetryingStore, settings: ChainSettings) -> Verified:
    """Read and prove every checkpoint, every segment that one names, and every link from where they begin.

    Raises NotFound where there is no home, Corrupt and Conflict where something is not what it should be.
    """
    facts = await _find(store)
    chain = Chain(store, bytes.fromhex(facts.log_id), settings)
    space = Space(chain)
    heads = [await space.load_head(key) for key in await space.checkpoints()]
    segments = {segment.number: segment for head in heads for segment in head.segments}
    for segment in segments.values():
        await read_segment(chain, segment)
    try:
        walked = await _walk(chain, facts.beginning)
    except Freed:
        walked = await _walk(chain, min(head.begin for head in heads))
    return Verified(facts, *walked[:3], len(segments), len(heads), walked[3])


async def _walk(chain: Chain, place: Place) -> tuple[int, int, int, Place]:
    links = fences = size = 0
    async for step in chain.follow(place):
        place = step.after
        fences += step.link.is_fence
        links += not step.link.is_fence
        size += sum(len(run.data) for run in step.link.runs)
    return links, fences, size, place


async def _find(store: RetryingStore) -> HomeFacts:
    facts = await find_home(store)
    if facts is None:
        raise NotFound(f"there is no home under {store.store.url}", code="no_home", url=store.store.url)
    return facts
