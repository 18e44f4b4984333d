"""Read the chain: every link proven by the one before it, and an end that is an end and not a hole."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import takewhile
from typing import Final

from tenure.chain.keys import CHAIN, link_key, mark_key
from tenure.chain.link import Link, digest
from tenure.chain.parts import PartMissing, read_parts
from tenure.chain.place import Place, Step
from tenure.chain.settings import ChainSettings
from tenure.errors import Conflict, Corrupt, Invalid, NotFound
from tenure.limits import MIB
from tenure.objects.request_limits import REQUEST_BYTES_PER_S_MIN
from tenure.objects.retrying import RetryingStore

__all__ = ["Chain", "Freed"]


_AHEAD_BYTES_MAX: Final = 16 * MIB
"""What is read beyond the next link, at most, however many links there are and however large."""


def _never() -> bool:
    return False


def _fitting(found: Iterable[bytes | None]) -> int:
    """Return how many links like these may be read at once."""
    largest = max((len(data) for data in found if data is not None), default=0)
    return max(1, _AHEAD_BYTES_MAX // max(1, largest))


class Freed(NotFound):
    """Links behind this place were deleted: begin again from a checkpoint of the home."""

    default_code = "chain_freed"


class Chain:
    """The links of one log under a prefix."""

    def __init__(self, store: RetryingStore, log_id: bytes, settings: ChainSettings) -> None:
        self.store = store
        self.log_id = log_id
        self.settings = settings

    async def follow(self, place: Place, *, proves_end: bool = True) -> AsyncIterator[Step]:
        """Yield each link from a place on, up to the end of the chain as it is now.

        Links are read ahead, twice as many each time while there are more, as far as they are small. Raises Corrupt
        where a link is damaged, missing, or of another history, Conflict where it is of another log, Freed where links
        were deleted. Who looks again soon need not prove each time that the end is one, and not a hole.
        """
        ahead = 1
        while True:
            found = await self._read_some(place, ahead)
            is_end = found[0] is None
            ahead = min(2 * ahead, self.settings.reads_max, _fitting(found))
            while found:
                data = found.popleft()
                if data is None:
                    break
                link = await self._whole(await self._prove(place, data), place)
                step = Step(link, place, place.after(link, digest(data)))
                yield step
                place = step.after
                if link.is_fence:
                    break  # what was read behind a fence is of no epoch
            if is_end:
                if proves_end:
                    await self._check_end(place)
                return

    async def read(self, epoch: int, number: int) -> bytes | None:
        """Return the object in a slot, None where it is free."""
        return await self.store.find_soon(link_key(epoch, number), self.settings.link_object_bytes_max)

    async def create(
        self,
        epoch: int,
        number: int,
        data: bytes,
        *,
        is_over: Callable[[], bool] = _never,
        bytes_per_s_min: int = REQUEST_BYTES_PER_S_MIN,
    ) -> bytes | None:
        """Create the object in a slot; return None where it is this one, else the bytes that are there.

        The same bytes are sent until the outcome is known. Raises OutcomeUnknown once ``is_over`` returns True.
        """
        created = await self.store.create_until_known(
            link_key(epoch, number),
            data,
            limit_bytes=self.settings.link_object_bytes_max,
            is_over=is_over,
            bytes_per_s_min=bytes_per_s_min,
        )
        return None if created.is_mine else created.theirs or b""

    async def is_freed(self, epoch: int) -> bool:
        """Return whether links of an epoch may have been deleted."""
        return await self.store.exists(mark_key(epoch))

    async def _read_some(self, place: Place, count: int) -> deque[bytes | None]:
        """Return the objects in the next slots, up to the first that is free, or too large to be read ahead."""
        later = range(place.number + 1, place.number + count)
        first, *rest = await asyncio.gather(
            self.read(place.epoch, place.number), *(self._read_ahead(place.epoch, number, count) for number in later)
        )
        return deque([first, *takewhile(lambda data: data is not None, rest)])

    async def _read_ahead(self, epoch: int, number: int, count: int) -> bytes | None:
        """Return the object in a slot, None where it is free, or takes more than its share of what is read ahead."""
        try:
            return await self.store.find_soon(link_key(epoch, number), _AHEAD_BYTES_MAX // count)
        except Invalid as error:
            if error.code != "object_too_large":
                raise
            return None

    async def _prove(self, place: Place, data: bytes) -> Link:
        """Return the link in the next slot. Raises as ``follow``."""
        key = link_key(place.epoch, place.number)
        link = Link.unpack(data, key)
        if link.log_id != self.log_id:
            raise Conflict(f"{key} belongs to another log: two logs share one prefix", code="foreign_log", key=key)
        named = (link.epoch - 1 if link.is_fence else link.epoch, link.number)
        if named != (place.epoch, place.number):
            raise Corrupt(f"{key} holds the link of slot {named}: it was copied or renamed", key=key)
        is_next = link.prev == place.digest
        # The look comes after the read: a fence that was put where links had been deleted began nothing.
        if (link.is_fence or not is_next) and await self.is_freed(place.epoch):
            raise self.freed(place.epoch, place.number)
        if not is_next:
            raise Corrupt(
                f"{key} does not follow the link before it: the store lost or replaced a part of the chain, "
                "or this directory went another way",
                key=key,
            )
        return link

    async def _whole(self, link: Link, place: Place) -> Link:
        """Return a link with its runs, also where they lie in parts. Raises Corrupt, Freed."""
        if not link.parts:
            return link
        try:
            return await read_parts(self.store, link, link_key(place.epoch, place.number))
        except PartMissing:
            if await self.is_freed(place.epoch):
                raise self.freed(place.epoch, place.number) from None
            raise

    async def check_is_last(self, place: Place, fence: bytes) -> None:
        """Check that the fence with this digest, in this slot, is the end of the chain. Raises Corrupt, Freed.

        What a hole of any length may hide is looked for, such as a later epoch whose fence, or a freed one whose mark,
        was deleted by somebody. A rival may have read the fence already and ended the epoch
        that it began: its leader finds that with its first link.
        """
        key = link_key(place.epoch, place.number)
        is_freed, found = await asyncio.gather(self.is_freed(place.epoch), self._next_after(place))
        if is_freed:
            raise self.freed(place.epoch, place.number)
        if found is not None and not await self._follows(found, Place(place.epoch + 1, 0, fence)):
            message = f"{key} was free although {found} follows it: the store lost a part of the chain"
            raise Corrupt(message, key=key)

    async def _next_after(self, place: Place) -> str | None:
        """Return the key of an object behind a slot, None where there is none: as listed, or in the slot after it."""
        later, listed = await asyncio.gather(
            self.read(place.epoch, place.number + 1), self._first_after(link_key(place.epoch, place.number))
        )
        return listed if later is None else link_key(place.epoch, place.number + 1)

    async def _first_after(self, key: str) -> str | None:
        async for info in self.store.list_objects(CHAIN, start_after=key):
            return info.key
        return None

    async def _follows(self, key: str, place: Place) -> bool:
        """Return whether a link that a listing shows is the one in the next slot, of the same history."""
        if key != link_key(place.epoch, place.number):
            return False
        data = await self.read(place.epoch, place.number)
        return data is not None and Link.unpack(data, key).prev == place.digest

    async def _check_end(self, place: Place) -> None:
        """Check that a free slot is the end of the chain. Raises Corrupt for a hole, Freed where it was deleted.

        A listing shows what lies behind a hole of any length, also where a lost fence hides the epoch after it: whoever
        ends the epoch here must know before it does.
        """
        key = link_key(place.epoch, place.number)
        is_freed, later = await asyncio.gather(self.is_freed(place.epoch), self._next_after(place))
        if is_freed:
            raise self.freed(place.epoch, place.number)
        if later is None:
            return
        if await self.read(place.epoch, place.number) is None:
            if await self.is_freed(place.epoch):  # since the first look: this reader is slow
                raise self.freed(place.epoch, place.number)
            raise Corrupt(f"{key} is missing, and {later} behind it is there: the store lost it", key=key)

    def freed(self, epoch: int, number: int) -> Freed:
        """Return the error of a slot whose epoch was freed."""
        key = link_key(epoch, number)
        return Freed(f"{key} and links beside it were deleted since: begin at a checkpoint", key=key)
