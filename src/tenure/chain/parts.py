"""The parts of a large link: stored before it is, each in an object that its digest names, and read back with it.

A link is one object, and the chain goes on with the next one only when it is stored. What takes long to upload is
therefore stored beside the chain first, piece by piece: a piece that is lost on the way is sent again alone, and the
links that say that the leader lives go past it. The link then takes one short request.

Parts lie below their epoch and go when its links do. One that no link names, because its writer died or lost the lead
before the link was sent, goes then, too.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tenure.chain.keys import part_key
from tenure.chain.link import Link, Part, Run
from tenure.chain.uplink import Uplink
from tenure.errors import Corrupt
from tenure.objects.retrying import RetryingStore

__all__ = ["FEATURE", "PartMissing", "read_parts", "store_parts"]

FEATURE: Final = "parts"
"""The feature of a log whose home may hold links in parts."""
_READS_MAX: Final = 4


class PartMissing(Corrupt):
    """A part that a link names is not there."""


async def store_parts(
    store: RetryingStore, runs: Sequence[Run], *, epoch: int, uplink: Uplink, is_over: Callable[[], bool]
) -> list[Part]:
    """Store what the runs hold in parts; return them in order. All of it is in the store then.

    Raises OutcomeUnknown once ``is_over`` returns True, Corrupt where a key holds other bytes than its name says.
    """
    waiting = deque(enumerate(_pieces(runs, uplink.part_bytes)))
    parts: dict[int, Part] = {}
    under_way: set[asyncio.Task[None]] = set()

    async def send(index: int, data: bytes) -> None:
        parts[index] = part = Part(len(data), hashlib.sha256(data).digest())
        key = part_key(epoch, part.sha256)
        began_s = asyncio.get_running_loop().time()
        create, least = store.create_until_known, uplink.bytes_per_s_min
        created = await create(key, data, limit_bytes=len(data), is_over=is_over, bytes_per_s_min=least)
        if not created.is_mine:
            raise Corrupt(f"{key} holds other bytes than its name says: something else wrote there", key=key)
        uplink.measured(len(data), asyncio.get_running_loop().time() - began_s)

    try:
        while waiting or under_way:
            while waiting and len(under_way) < uplink.parts_at_once:
                under_way.add(asyncio.create_task(send(*waiting.popleft())))
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            if errors := [error for task in done if (error := task.exception()) is not None]:
                raise errors[0]
    finally:
        for task in under_way:
            task.cancel()
    return [parts[index] for index in range(len(parts))]


def _pieces(runs: Sequence[Run], size: int) -> Iterator[bytes]:
    """Yield what the runs hold, one after the other, in pieces of this size; the last one is shorter."""
    piece = bytearray()
    for run in runs:
        data = memoryview(run.data)
        while data:
            taken = data[: size - len(piece)]
            piece += taken
            data = data[len(taken) :]
            if len(piece) == size:
                yield bytes(piece)
                piece = bytearray()
    if piece:
        yield bytes(piece)


async def read_parts(store: RetryingStore, link: Link, key: str) -> Link:
    """Return a large link with its runs. Raises PartMissing, Corrupt where a part is not what it is named."""
    pieces: list[bytes] = []
    for start in range(0, len(link.parts), _READS_MAX):
        portion = link.parts[start : start + _READS_MAX]
        pieces += await asyncio.gather(*(_read(store, part, link.epoch) for part in portion))
    held, named = sum(map(len, pieces)), sum(span.length for span in link.spans)
    if held != named:
        raise Corrupt(f"the runs of {key} take {named} bytes, its parts hold {held}", key=key)
    left = deque(memoryview(piece) for piece in pieces)
    pieces.clear()
    return link._replace(runs=[Run(*span[:2], _take(left, span.length)) for span in link.spans], spans=())


def _take(left: deque[memoryview], length: int) -> bytes:
    """Take so many bytes from what is left of the parts, each of which is let go with its last byte."""
    taken = bytearray()
    while len(taken) < length:
        piece = left.popleft()
        wanted = length - len(taken)
        taken += piece[:wanted]
        if len(piece) > wanted:
            left.appendleft(piece[wanted:])
    return bytes(taken)


async def _read(store: RetryingStore, part: Part, epoch: int) -> bytes:
    key = part_key(epoch, part.sha256)
    data = await store.find_soon(key, part.length, size_bytes=part.length)
    if data is None:
        raise PartMissing(f"{key} is missing, and a link names it: the store lost it", key=key)
    if len(data) != part.length or hashlib.sha256(data).digest() != part.sha256:
        raise Corrupt(f"{key} fails its digest: it is damaged in the store", key=key)
    return data
