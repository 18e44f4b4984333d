"""The space of a home: checkpoints, sealed segments, and the links that they make superfluous.

Nothing is deleted that a new machine needs. Links are freed by whole epochs that are closed and lie below both of the
two newest checkpoints: the mark of an epoch comes first, its fence stays for ever, and no slot of a living epoch is
ever freed. What was stored less than ``keep_ms`` ago, by the store's clock, stays as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenure.chain.chain import Chain
from tenure.chain.keys import link_key, mark_key
from tenure.chain.notes import Notes
from tenure.chain.stored_checkpoint import (
    CHECKPOINTS,
    SEGMENTS,
    StoredCheckpoint,
    StoredSegment,
    checkpoint_key,
    segment_key,
    sha256,
)
from tenure.errors import Corrupt
from tenure.log.interface import Position
from tenure.objects.store import ObjectMissing

__all__ = ["Space"]

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

    async def store_segment(self, number: int, data: bytes) -> StoredSegment:
        """Store a sealed segment unless it is there. All of it must be in the chain, and the head of the next one."""
        segment = StoredSegment(number, len(data), sha256(data))
        key = segment_key(segment)
        if not await self._has(key, len(data)):
            await self._store.create_own(key, data)
        return segment

    async def store_checkpoint(
        self, position: Position, payload: bytes, *, epoch: int, segments: Sequence[StoredSegment], notes: Notes
    ) -> str:
        """Store the state at a position that is in the chain; return its key.

        Every segment that it names was stored before. Raises Corrupt where it does not read back, ObjectMissing where
        the place to follow from is not known.
        """
        if (begin := notes.begun.get(position.segment)) is None:
            raise ObjectMissing(f"the link that began segment {position.segment} is not noted")
        head = StoredCheckpoint(
            log_id=notes.log_id,
            epoch=epoch,
            position=position,
            begin=begin,
            segments=list(segments),
            closed=notes.closed,
            payload_sha256=sha256(payload),
        )
        key = checkpoint_key(epoch, position.batch)
        await self._store.create_own(key, head.pack(payload))
        if (await self.load(key))[0] != head:  # not what is remembered of the key: it may have been collected since
            raise Corrupt(f"{key} does not read back as it was stored", key=key)
        return key

    async def _has(self, key: str, size: int) -> bool:
        try:
            return (await self._store.repeat(lambda: self._store.store.head(key))).bytes == size
        except ObjectMissing:
            return False

    # Finding

    async def checkpoints(self) -> list[str]:
        """Return the keys of the checkpoints, newest first."""
        return sorted([info.key async for info in self._store.list_objects(CHECKPOINTS)], reverse=True)

    async def load(self, key: str) -> tuple[StoredCheckpoint, bytes]:
        """Return a checkpoint, proven by its digest. Raises Corrupt, ObjectMissing."""
        head, payload = StoredCheckpoint.unpack(await self._store.get(key, self._settings.link_object_bytes_max), key)
        if head.log_id != self._chain.log_id.hex():
            raise Corrupt(f"{key} is of another log", key=key)
        self._heads[key] = head
        return head, payload

    async def load_head(self, key: str) -> StoredCheckpoint:
        """Return the head of a checkpoint that counts: it was read whole, once. Raises as ``load``."""
        return self._heads[key] if key in self._heads else (await self.load(key))[0]

    # Freeing

    async def collect(self, notes: Notes) -> set[int]:
        """Free what the two newest checkpoints make superfluous; return the closed epochs that are freed now."""
        # Before the listing: what a later leader stores while this one stands still is newer than that.
        before_ms = await self._store.repeat(self._store.store.now_ms) - self._settings.keep_ms
        kept: list[StoredCheckpoint] = []
        old: list[str] = []
        for key in await self.checkpoints():
            if len(kept) < _KEPT_COUNT:
                kept.append(await self.load_head(key))
            else:
                old.append(key)
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
        if fence:
            await self._store.create_own(mark_key(epoch), b"freed")
            for numbers in _portions(fence):
                await self._store.delete([link_key(epoch, number) for number in numbers])
        return True

    async def _delete_old(self, keys: Sequence[str], kept: Sequence[StoredCheckpoint], before_ms: int) -> None:
        """Delete older checkpoints, and sealed segments that neither of the kept ones names."""
        named = {segment_key(segment) for head in kept for segment in head.segments}
        doomed = [*keys]
        async for info in self._store.list_objects(SEGMENTS):
            if info.key not in named and info.modified_ms <= before_ms:
                doomed.append(info.key)
        for start in range(0, len(doomed), _DELETE_MAX):
            await self._store.delete(doomed[start : start + _DELETE_MAX])
        for key in keys:
            self._heads.pop(key, None)


def _portions(count: int) -> Iterator[range]:
    for start in range(0, count, _DELETE_MAX):
        yield range(start, min(start + _DELETE_MAX, count))
