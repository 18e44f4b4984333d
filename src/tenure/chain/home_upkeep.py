"""Upkeep of a home by its leader: each checkpoint of the directory goes there too, and what it replaces is freed.

It runs beside the links, on the background loop and in threads of it, so that neither the broker's loop nor a sync
waits for an upload.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

from tenure.chain.leadership import Leadership
from tenure.chain.notes import NotesFile
from tenure.chain.space import Space
from tenure.chain.stored_checkpoint import StoredSegment
from tenure.errors import TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.segment import list_heads, segment_name
from tenure.objects.background import background

__all__ = ["HomeUpkeep"]

logger = logging.getLogger("tenure.chain")


class HomeUpkeep:
    """One save at a time; a checkpoint that comes meanwhile is left to the next one."""

    def __init__(self, disk: Disk, leadership: Leadership, notes: NotesFile) -> None:
        self._disk = disk
        self._leadership = leadership
        self._notes = notes
        self._space = Space(leadership.chain)
        self._sealed: dict[int, StoredSegment] = {}
        self._saving: Future[None] | None = None

    def start(self, position: Position) -> None:
        """Save the checkpoint at a position, which is durable here and in the chain, unless another is being saved."""
        if self._saving is None or self._saving.done():
            self._saving = background().start(self._guard(position))

    def stop(self) -> None:
        """Give up a save that is under way: the next leader makes another."""
        if self._saving is not None:
            self._saving.cancel()

    async def _guard(self, position: Position) -> None:
        try:
            await self.save(position)
        except (TenureError, OSError) as error:
            logger.warning("no checkpoint was stored in the home; the next one is tried again: %s", error)

    async def save(self, position: Position) -> None:
        """Store the checkpoint at a position and the segments that it needs, then free what became superfluous.

        Raises TenureError, OSError; whatever was stored then is harmless.
        """
        payload = await asyncio.to_thread(self._payload, position)
        segments = [await self._store(number, size) for number, size in await asyncio.to_thread(self._alive, position)]
        leadership = self._leadership
        await leadership.prove()
        self._notes.save()  # the place noted lies above every epoch that may be freed: a restart does not need those
        notes = self._notes.notes
        await self._space.store_checkpoint(position, payload, epoch=leadership.epoch, segments=segments, notes=notes)
        self._notes.forget_closed(await self._space.collect(notes))

    def _payload(self, position: Position) -> bytes:
        for found, payload in checkpoint.load(self._disk):
            if found == position:
                return payload
        raise FileNotFoundError(f"the checkpoint of batch {position.batch} is not there any more")

    def _alive(self, position: Position) -> list[tuple[int, int]]:
        """Return the number and size of each sealed segment that was alive at a position."""
        heads = list_heads(self._disk)
        sizes = {head.number - 1: head.previous_end for head in heads[1:]}
        alive = range(max(1, position.dropped + 1), position.segment)
        if gone := set(alive) - sizes.keys():
            raise FileNotFoundError(f"segment {min(gone)} was dropped since the checkpoint was made")
        self._sealed = {number: segment for number, segment in self._sealed.items() if number in alive}
        return [(number, sizes[number]) for number in alive]

    async def _store(self, number: int, size: int) -> StoredSegment:
        if number not in self._sealed:
            data = await asyncio.to_thread(self._read, number, size)
            self._sealed[number] = await self._space.store_segment(number, data)
        return self._sealed[number]

    def _read(self, number: int, size: int) -> bytes:
        file = self._disk.open(segment_name(number))
        try:
            return self._disk.pread(file, size, 0)
        finally:
            self._disk.close(file)
