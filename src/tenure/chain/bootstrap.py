"""Begin from a checkpoint of the home: for a directory that is empty, or whose place in the chain was freed."""

from __future__ import annotations

import asyncio
import logging
from itertools import takewhile

import msgspec

from tenure.chain.chain import Chain
from tenure.chain.copy import LocalCopy
from tenure.chain.link import Run
from tenure.chain.notes import Notes
from tenure.chain.space import Space
from tenure.chain.stored_checkpoint import StoredCheckpoint, StoredSegment, segment_key, sha256
from tenure.errors import Corrupt
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.objects.store import ObjectMissing

__all__ = ["begin_at_checkpoint", "read_segment"]

logger = logging.getLogger("tenure.chain")

_FETCHES_MAX = 4


async def begin_at_checkpoint(chain: Chain, disk: Disk, copy: LocalCopy, notes: Notes) -> Notes | None:
    """Fetch the newest whole checkpoint of the home with its segments; return the notes to follow the chain from.

    What the directory held is moved aside, except for segments that are the same. None where there is no checkpoint.
    Raises Corrupt where none of them is whole, OSError.
    """
    space = Space(chain)
    damage: Corrupt | None = None
    keys = await space.checkpoints()
    for key in keys:
        try:
            head, payload = await space.load(key)
            await _fetch_all(chain, copy, head)
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


async def _fetch_all(chain: Chain, copy: LocalCopy, head: StoredCheckpoint) -> None:
    """Bring the sealed segments of a checkpoint here, a few at a time, and move everything else aside.

    They come from the oldest on, and none is kept behind one that is missing: whenever this is cut short, a segment
    that is not here yet does not look like one that was dropped.
    """
    segments = sorted(head.segments, key=lambda each: each.number)
    here = list(takewhile(lambda each: copy.has_segment(each.number, each.bytes, each.sha256), segments))
    copy.keep_only({each.number for each in here}, aside=f"checkpoint-{head.position.batch:020d}")
    missing = segments[len(here) :]
    for start in range(0, len(missing), _FETCHES_MAX):
        portion = missing[start : start + _FETCHES_MAX]
        fetched = await asyncio.gather(*(read_segment(chain, segment) for segment in portion))
        for segment, data in zip(portion, fetched, strict=True):
            copy.write([Run(segment.number, 0, data)])


async def read_segment(chain: Chain, segment: StoredSegment) -> bytes:
    """Return a sealed segment, proven by its digest. Raises Corrupt, ObjectMissing."""
    key = segment_key(segment)
    data = await chain.store.get(key, chain.settings.link_object_bytes_max)
    if len(data) != segment.bytes or sha256(data) != segment.sha256:
        raise Corrupt(f"{key} fails its digest: it is damaged in the store", key=key)
    return data
