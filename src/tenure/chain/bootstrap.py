"""Begin from a checkpoint of the home: for a directory that is empty, or whose place in the chain was freed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import takewhile

import msgspec

from tenure.chain.chain import Chain
from tenure.chain.copy import LocalCopy
from tenure.chain.link import Run
from tenure.chain.notes import Notes
from tenure.chain.place import End
from tenure.chain.space import Space
from tenure.chain.stored_checkpoint import StoredCheckpoint, StoredSegment, segment_key, sha256
from tenure.errors import Corrupt
from tenure.limits import MIB
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.objects.store import ObjectMissing

__all__ = ["begin_at_checkpoint", "read_segment"]

logger = logging.getLogger("tenure.chain")

_FETCHES_MAX = 4
_FETCH_BYTES_MAX = 64 * MIB
"""What is fetched at once, at most, or one segment however large it is."""
_RANGE_BYTES = 8 * MIB


async def begin_at_checkpoint(chain: Chain, disk: Disk, copy: LocalCopy, notes: Notes) -> Notes | None:
    """Fetch the newest whole checkpoint of the home with its segments; return the notes to follow the chain from.

    What the directory held behind its place is moved aside, except for what is the same. None where there is no
    checkpoint. Raises Corrupt where none of them is whole, OSError.
    """
    space = Space(chain)
    damage: Corrupt | None = None
    keys = await space.checkpoints()
    for key in keys:
        try:
            head, payload = await space.load(key)
            await _fetch_all(chain, copy, head, proven=notes.place.end)
        except (Corrupt, ObjectMissing) as error:
            logger.warning("%s: an older checkpoint is tried", error.message)
            damage = error if isinstance(error, Corrupt) else Corrupt(f"{key} is not whole: {error.message}", key=key)
            continue
        copy.sync()
        checkpoint.save(disk, head.position, payload)
        begun = {head.position.segment: head.begin}
        return msgspec.structs.replace(notes, place=head.begin, begun=begun, closed=head.closed)
    if damage is None:
        return None
    if await space.checkpoints() != keys:  # collected meanwhile: newer ones are there
        return await begin_at_checkpoint(chain, disk, copy, notes)
    raise damage


async def _fetch_all(chain: Chain, copy: LocalCopy, head: StoredCheckpoint, *, proven: End) -> None:
    """Bring the sealed segments of a checkpoint here, a few at a time, and let go of everything else.

    They come from the oldest on, and none is kept behind one that is missing: whenever this is cut short, a segment
    that is not here yet does not look like one that was dropped.
    """
    segments = sorted(head.segments, key=lambda each: each.number)
    here = list(takewhile(lambda each: copy.has_segment(each.number, each.bytes, each.sha256), segments))
    aside = f"checkpoint-{head.position.batch:020d}"
    copy.keep_only({each.number for each in here}, proven=proven, aside=aside)
    for portion in _portions(segments[len(here) :]):
        fetched = await asyncio.gather(*(read_segment(chain, segment) for segment in portion))
        for segment, data in zip(portion, fetched, strict=True):
            copy.write([Run(segment.number, 0, data)])
            copy.take_back(segment.number, data)


def _portions(segments: Sequence[StoredSegment]) -> Iterator[list[StoredSegment]]:
    """Yield the segments in portions that are fetched at once."""
    portion: list[StoredSegment] = []
    for segment in segments:
        size = sum(each.bytes for each in portion) + segment.bytes
        if portion and (len(portion) == _FETCHES_MAX or size > _FETCH_BYTES_MAX):
            yield portion
            portion = []
        portion.append(segment)
    if portion:
        yield portion


async def read_segment(chain: Chain, segment: StoredSegment) -> bytes:
    """Return a sealed segment, proven by its digest. Raises Corrupt, ObjectMissing.

    A large one is read in ranges, some at once: so one at a time is as quick as several, and takes less memory.
    """
    key = segment_key(segment)
    data = b"".join(await _read_ranges(chain, key, segment.bytes))
    if len(data) != segment.bytes or sha256(data) != segment.sha256:
        raise Corrupt(f"{key} fails its digest: it is damaged in the store", key=key)
    return data


async def _read_ranges(chain: Chain, key: str, size: int) -> list[bytes]:
    """Return the content of an object in pieces; nothing where it has another size. Raises ObjectMissing."""
    if size <= _RANGE_BYTES:
        return [await chain.store.get(key, chain.settings.link_object_bytes_max)]
    if (await chain.store.head(key)).bytes != size:
        return []
    starts, pieces = range(0, size, _RANGE_BYTES), list[bytes]()
    for at in range(0, len(starts), _FETCHES_MAX):
        portion = starts[at : at + _FETCHES_MAX]
        pieces += await asyncio.gather(*(_read_range(chain, key, start) for start in portion))
    return pieces


async def _read_range(chain: Chain, key: str, start: int) -> bytes:
    get = chain.store.store.get
    return await chain.store.repeat(lambda: get(key, start=start, length=_RANGE_BYTES, limit_bytes=_RANGE_BYTES))
