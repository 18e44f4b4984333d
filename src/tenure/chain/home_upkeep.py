"""Upkeep of a home: its checkpoints with the segments that they need, and what they make superfluous.

Standbys make the checkpoints; the leader makes one where none has come from them for two of its own intervals, and it
alone frees. All of it runs beside the links, on the background loop and in threads of it, so that neither the broker's
loop, nor a sync, nor a standby that follows waits for an upload.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Final, Literal

from tenure.chain.chain import Chain
from tenure.chain.leadership import Leadership
from tenure.chain.notes import Notes, NotesFile
from tenure.chain.space import Space
from tenure.chain.stored_checkpoint import StoredCheckpoint, StoredSegment, batch_of, segment_key, sha256
from tenure.errors import Corrupt, TenureError
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.interface import Position
from tenure.log.segment import list_heads, segment_name
from tenure.objects.background import background
from tenure.objects.store import ObjectMissing

__all__ = ["HomeUpkeep", "LeaderUpkeep", "StandbyUpkeep"]

logger = logging.getLogger("tenure.chain")

_LEADER_INTERVALS: Final = 2
_STANDBY_INTERVALS: Final = 1
_JITTER_RATIO: Final = 2


class HomeUpkeep(ABC):
    """The checkpoints that one member brings to its home: one at a time, and one that comes meanwhile is left out.

    None is brought where another member brought one within the last ``intervals`` checkpoints of this directory, which
    begins to count at ``batch``.
    """

    _role: Literal["leader", "standby"]

    def __init__(self, disk: Disk, chain: Chain, *, url: str, batch: int, intervals: int) -> None:
        self._disk = disk
        self._chain = chain
        self._space = Space(chain)
        self._url = url
        #: The batches of the last checkpoints of this directory, the oldest first.
        self._before = deque([batch] * intervals, maxlen=intervals)
        #: The key of the last checkpoint that was brought from here.
        self._own = ""
        #: Sealed segments whose digest is known.
        self._sealed: dict[int, StoredSegment] = {}
        self._saving: Future[None] | None = None
        #: How many checkpoints were brought from here.
        self.stored = 0

    def start(self, position: Position, notes: Notes) -> None:
        """Save the checkpoint at a position, which is durable here and in the chain, unless another is being saved.

        ``notes`` are those of the directory at the position or later, in the same epoch.
        """
        if not self.is_saving:
            self._saving = background().start(self._guard(position, notes))

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way, which reads the segments that were alive at its position."""
        return self._saving is not None and not self._saving.done()

    def stop(self) -> None:
        """Give up a save that is under way, without waiting for it: another member makes another."""
        if self._saving is not None:
            self._saving.cancel()

    async def _guard(self, position: Position, notes: Notes) -> None:
        try:
            await self.save(position, notes)
        except (TenureError, OSError) as error:
            logger.warning("no checkpoint was stored in the home; the next one is tried again: %s", error)

    async def save(self, position: Position, notes: Notes) -> None:
        """Store the checkpoint at a position and the segments that it needs, unless another member did.

        Raises TenureError, OSError; whatever was stored then is harmless.
        """
        is_made = await self._is_made()
        self._before.append(position.batch)
        if is_made:
            return
        payload = await asyncio.to_thread(self._payload, position)
        stored = await self._space.segments()
        alive = await asyncio.to_thread(self._alive, position)
        self._sealed = {number: segment for number, segment in self._sealed.items() if number in alive}
        segments = [await self._bring(number, size, stored) for number, size in alive.items()]
        head = await asyncio.to_thread(self._head, position, notes, segments, payload)
        await self._prove(notes)
        if (key := await self._space.store_checkpoint(head, payload)) is not None:
            self._own = key
            self.stored += 1

    @abstractmethod
    async def _prove(self, notes: Notes) -> None:
        """Raise unless what this directory holds up to the notes is the history of the home."""

    async def _is_made(self) -> bool:
        """Return whether another member has brought a checkpoint that is new enough."""
        for key in await self._space.checkpoints():
            if key != self._own and batch_of(key) > self._before[0] and await self._counts(key):
                return True
        return False

    @abstractmethod
    async def _counts(self, key: str) -> bool:
        """Return whether a checkpoint of another member makes one from here superfluous."""

    def _head(
        self, position: Position, notes: Notes, segments: list[StoredSegment], payload: bytes
    ) -> StoredCheckpoint:
        """Return the head of a checkpoint. Raises ObjectMissing where the place to follow from is not known."""
        if (begin := notes.begun.get(position.segment)) is None:
            raise ObjectMissing(f"the link that began segment {position.segment} is not noted")
        return StoredCheckpoint(
            log_id=notes.log_id,
            epoch=notes.place.epoch,
            position=position,
            begin=begin,
            segments=segments,
            closed=notes.closed,
            payload_sha256=sha256(payload),
            made_by=self._url,
            role=self._role,
        )

    def _payload(self, position: Position) -> bytes:
        for found, payload in checkpoint.load(self._disk):
            if found == position:
                return payload
        raise FileNotFoundError(f"the checkpoint of batch {position.batch} is not there any more")

    def _alive(self, position: Position) -> dict[int, int]:
        """Return the sizes of the sealed segments that were alive at a position, by their numbers.

        The position lies in the chain, behind the head of its segment: so all of each sealed one does, too.
        """
        heads = list_heads(self._disk)
        sizes = {head.number - 1: head.previous_end for head in heads[1:]}
        alive = range(max(1, position.dropped + 1), position.segment)
        if gone := set(alive) - sizes.keys():
            raise FileNotFoundError(f"segment {min(gone)} was dropped since the checkpoint was made")
        return {number: sizes[number] for number in alive}

    async def _bring(self, number: int, size: int, stored: dict[str, int]) -> StoredSegment:
        """Return a sealed segment that the home holds; ``stored`` are the sizes of those it held before."""
        known = self._sealed.get(number)
        if known is not None and stored.get(segment_key(known)) == known.bytes:
            return known
        segment, data = await asyncio.to_thread(self._read, number, size)
        if stored.get(segment_key(segment)) != segment.bytes:
            await self._space.store_segment(segment, data)
        self._sealed[number] = segment
        return segment

    def _read(self, number: int, size: int) -> tuple[StoredSegment, bytes]:
        file = self._disk.open(segment_name(number))
        try:
            data = self._disk.pread(file, size, 0)
        finally:
            self._disk.close(file)
        if len(data) != size:
            raise FileNotFoundError(f"segment {number} ends at {len(data)} of {size} bytes: it became another one")
        return StoredSegment(number, size, sha256(data)), data


class LeaderUpkeep(HomeUpkeep):
    """Upkeep by a leader: it stands in for standbys that bring no checkpoint, and frees what has become superfluous."""

    _role = "leader"

    def __init__(self, disk: Disk, leadership: Leadership, notes: NotesFile) -> None:
        batch = leadership.place.end.batch
        super().__init__(disk, leadership.chain, url=leadership.fence.url, batch=batch, intervals=_LEADER_INTERVALS)
        self._leadership = leadership
        self._notes = notes

    async def save(self, position: Position, notes: Notes) -> None:
        """Store a checkpoint where it is due, then free what the newest ones make superfluous. Raises as before."""
        await super().save(position, notes)
        await self._leadership.prove()
        self._notes.save()  # the place noted lies above every epoch that may be freed: a restart does not need those
        self._notes.forget_closed(await self._space.collect(self._notes.notes))

    async def _prove(self, notes: Notes) -> None:
        await self._leadership.prove()

    async def _counts(self, key: str) -> bool:
        """Return whether it is whole: the collector counts on it, and this member is the last that could notice."""
        return await self._space.find_head(key) is not None


class StandbyUpkeep(HomeUpkeep):
    """Upkeep by a standby: the first of several that is due makes the checkpoint, so that the leader need not."""

    _role = "standby"

    def __init__(self, disk: Disk, chain: Chain, *, url: str, batch: int, random: Random) -> None:
        super().__init__(disk, chain, url=url, batch=batch, intervals=_STANDBY_INTERVALS)
        self._random = random

    async def save(self, position: Position, notes: Notes) -> None:
        """Wait for a moment, as standbys are due together, then store a checkpoint. Raises as before."""
        await asyncio.sleep(self._random.uniform(0, _JITTER_RATIO * self._chain.settings.place_ms) / 1000)
        await super().save(position, notes)

    async def _prove(self, notes: Notes) -> None:
        """Look for the mark after all was read: where links were deleted before, others may have been put there."""
        place = notes.place
        if await self._chain.is_freed(place.epoch):
            raise self._chain.freed(place.epoch, place.number)

    async def _counts(self, key: str) -> bool:
        """Return whether a standby made it: those of a leader do not hinder one, or that would make them for ever."""
        with suppress(Corrupt, ObjectMissing):
            return (await self._space.peek(key)).role == "standby"
        return False

    def begin_anew(self) -> None:
        """Give up what is under way, and forget the segments: the files became others."""
        self.stop()
        self._sealed = {}
