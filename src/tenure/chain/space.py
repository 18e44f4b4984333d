"""The space of a home: checkpoints, sealed segments, and the links that they make superfluous.

Nothing is deleted that a new machine needs. Links are freed by whole epochs that are closed and lie below both of the
two newest checkpoints: the mark of an epoch comes first, its fence stays for ever, and no slot of a living epoch is
ever freed. A sealed segment goes once the older of the two says that it was dropped from the log: no later checkpoint
names it, whoever makes that one and however long it takes. One that no checkpoint names *yet* stays, since another
member may have seen it and be about to name it. What was stored less than ``keep_ms`` ago, by the store's clock, stays
as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from tenure.chain.chain import Chain
from tenure.chain.keys import epoch_prefix, link_key, mark_key, parts_prefix
from tenure.chain.notes import Notes
from tenure.chain.stored_checkpoint import (
    CHECKPOINTS,
    FRONT_BYTES,
    SEGMENTS,
    StoredCheckpoint,
    StoredSegment,
    checkpoint_key,
    number_of,
    segment_key,
)
from tenure.errors import Corrupt
from tenure.objects.store import ObjectMissing

__all__ = ["Space"]

logger = logging.getLogger("tenure.chain")

_DELETE_MAX = 1_000
_KEPT_COUNT = 2


class Space:
    """What a home stores beside its chain."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._store = chain.store
        self._settings = chain.settings
        #: Checkpoints that were read whole, by key.
        self._heads: dict[str, StoredCheckpoint] = {}

    # Storing

    async def store_segment(self, segment: StoredSegment, data: bytes) -> None:
        """Store a sealed segment. All of it must be in the chain, and the head of the next one."""
        await self._store.create_own(segment_key(segment), data)

    async def store_checkpoint(self, head: StoredCheckpoint, payload: bytes) -> str | None:
        """Store the state at a position that is in the chain; return its key, None where another member did just that.

        Every segment that the head names was seen in the home before. Raises Corrupt where it does not read back.
        """
        key = checkpoint_key(head.epoch, head.position.batch)
        if not await self._store.create(key, await asyncio.to_thread(head.pack, payload)):
            return None
        if (await self.load(key))[0] != head:  # not what is remembered of the key: it may have been collected since
            raise Corrupt(f"{key} does not read back as it was stored", key=key)
        return key

    # Finding

    async def checkpoints(self) -> list[str]:
        """Return the keys of the checkpoints, newest first."""
        return sorted([info.key async for info in self._store.list_objects(CHECKPOINTS)], reverse=True)

    async def segments(self) -> dict[str, int]:
        """Return the sizes of the sealed segments that the home holds, by their keys."""
        return {info.key: info.bytes async for info in self._store.list_objects(SEGMENTS)}

    async def load(self, key: str) -> tuple[StoredCheckpoint, bytes]:
        """Return a checkpoint, proven by its digest. Raises Corrupt, ObjectMissing."""
        data = await self._store.get(key, self._settings.link_object_bytes_max)
        head, payload = await asyncio.to_thread(StoredCheckpoint.unpack, data, key)
        if head.log_id != self._chain.log_id.hex():
            raise Corrupt(f"{key} is of another log", key=key)
        self._heads[key] = head
        return head, payload

    async def peek(self, key: str) -> StoredCheckpoint:
        """Return what the head of a checkpoint says, without a proof that the rest is whole. Raises as ``load``."""
        limit, get = self._settings.link_object_bytes_max, self._store.store.get
        front = await self._store.repeat(lambda: get(key, length=FRONT_BYTES, limit_bytes=limit))
        length = StoredCheckpoint.head_end(front, key) - FRONT_BYTES
        data = await self._store.repeat(lambda: get(key, start=FRONT_BYTES, length=length, limit_bytes=limit))
        return StoredCheckpoint.decode(data, key)

    async def load_head(self, key: str) -> StoredCheckpoint:
        """Return the head of a checkpoint that counts: it was read whole, once. Raises as ``load``."""
        return self._heads[key] if key in self._heads else (await self.load(key))[0]

    async def find_head(self, key: str) -> StoredCheckpoint | None:
        """Return the head of a checkpoint that counts, None for one that does not: it is damaged, or gone."""
        try:
            return await self.load_head(key)
        except (Corrupt, ObjectMissing) as error:
            logger.warning("a checkpoint of this home does not count: %s", error.message)
            return None

    # Freeing

    async def collect(self, notes: Notes) -> set[int]:
        """Free what the two newest checkpoints that count make superfluous; return the closed epochs that are gone."""
        # Before the listing: what a later leader stores while this one stands still is newer than that.
        before_ms = await self._store.repeat(self._store.store.now_ms) - self._settings.keep_ms
        kept: list[StoredCheckpoint] = []
        old: list[str] = []
        for key in await self.checkpoints():
            if len(kept) == _KEPT_COUNT:
                old.append(key)
            elif (head := await self.find_head(key)) is not None:
                kept.append(head)
        if len(kept) < _KEPT_COUNT:
            return set()
        floor = min(head.begin.epoch for head in kept)
        below = [(epoch, fence) for epoch, fence in sorted(notes.closed.items()) if epoch < floor]
        freed = {epoch for epoch, fence in below if await self._free(epoch, fence, before_ms)}
        await self._delete_old(old, kept, before_ms)
        return freed

    async def _free(self, epoch: int, fence: int, before_ms: int) -> bool:
        """Free the links of a closed epoch whose fence has this number; return whether they are gone."""
        try:
            info = await self._store.repeat(lambda: self._store.store.head(link_key(epoch, fence)))
        except ObjectMissing:
            key = link_key(epoch, fence)
            raise Corrupt(f"the fence {key} is gone, which nobody may delete: nothing more is freed", key=key) from None
        if info.modified_ms > before_ms:
            return False
        if await self._holds_data(epoch, fence):
            await self._store.create_own(mark_key(epoch), b"freed")
            await self._delete_parts(epoch)  # before the links: while one is there, this is done again
            for numbers in _portions(fence):
                await self._store.delete([link_key(epoch, number) for number in numbers])
        return True

    async def _holds_data(self, epoch: int, fence: int) -> bool:
        """Return whether a listing shows a link of an epoch beside its fence, or a part.

        Notes of a directory that followed, and those that come with its checkpoints, name every epoch that was ever
        closed: what another leader freed long ago is not worth a delete for each of its links.
        """
        async for info in self._store.list_objects(epoch_prefix(epoch)):
            if info.key != link_key(epoch, fence):
                return True
            break
        async for _ in self._store.list_objects(parts_prefix(epoch)):
            return True
        return False

    async def _delete_parts(self, epoch: int) -> None:
        """Delete the parts of the links of an epoch, also those that no link names."""
        keys = [info.key async for info in self._store.list_objects(parts_prefix(epoch))]
        for start in range(0, len(keys), _DELETE_MAX):
            await self._store.delete(keys[start : start + _DELETE_MAX])

    async def _delete_old(self, keys: Sequence[str], kept: Sequence[StoredCheckpoint], before_ms: int) -> None:
        """Delete older checkpoints, and sealed segments that were dropped before the older of the kept ones."""
        dropped = min(head.position.dropped for head in kept)
        doomed = [*keys]
        async for info in self._store.list_objects(SEGMENTS):
            if number_of(info.key) <= dropped and info.modified_ms <= before_ms:
                doomed.append(info.key)
        for start in range(0, len(doomed), _DELETE_MAX):
            await self._store.delete(doomed[start : start + _DELETE_MAX])
        for key in keys:
            self._heads.pop(key, None)


def _portions(count: int) -> Iterator[range]:
    for start in range(0, count, _DELETE_MAX):
        yield range(start, min(start + _DELETE_MAX, count))
