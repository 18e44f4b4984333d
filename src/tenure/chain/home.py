"""The home of a log: a prefix in a store that holds one chain.

The genesis comes first: a fence in the first slot of the first epoch, which carries the log's id. ``home.json`` follows
it and only repeats it, so that a prefix can be told by one small object; where it is missing it is written again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.chain.keys import HOME, link_key
from tenure.chain.link import NO_DIGEST, Kind, Link
from tenure.chain.place import Place
from tenure.errors import Conflict, Corrupt
from tenure.objects.retrying import RetryingStore

__all__ = ["HomeFacts", "create_home", "find_home"]

_FORMAT: Final = 1
_HOME_BYTES_MAX: Final = 64 * 1024
_OTHERS: Final = ("probe/", "members/", "export/")
"""What may lie under a prefix that holds no home yet."""


class HomeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What ``home.json`` says: the log, and the epoch whose first slot is the genesis."""

    format: int = _FORMAT
    log_id: str
    epoch: int = 0
    created_ms: int = 0

    @property
    def beginning(self) -> Place:
        """Return the place before the genesis."""
        return Place(self.epoch, 0)


async def find_home(store: RetryingStore) -> HomeFacts | None:
    """Return the home under the prefix, None where the prefix is empty.

    Raises Corrupt where a part of a home is there without the rest, Conflict where the prefix holds something else.
    """
    data = await store.find(HOME, _HOME_BYTES_MAX)
    if data is not None:
        facts = _decode(data)
        if await store.exists(link_key(facts.epoch, 0)):
            return facts
        key = link_key(facts.epoch, 0)
        raise Corrupt(f"{HOME} is there and {key} is not: the chain was removed, or is being", key=key)
    async for info in store.list_objects(""):
        if info.key.startswith("chain/"):
            return await _from_genesis(store, info.key)
        if not info.key.startswith(_OTHERS):
            message = f"the prefix holds something else: {info.key}. Use an empty one"
            raise Conflict(message, code="foreign_prefix", key=info.key)
    return None


async def create_home(store: RetryingStore, log_id: bytes, *, epoch: int, nonce: bytes, url: str, now_ms: int) -> None:
    """Create the genesis, then ``home.json``. Another process may be faster: ``find_home`` returns what is there then.

    Raises StoreFull, StoreRefused where nothing was created, else OutcomeUnknown.
    """
    genesis = Link(Kind.FENCE, log_id, epoch + 1, 0, NO_DIGEST, nonce, log_ms=now_ms, url=url)
    if await store.create(link_key(epoch, 0), genesis.pack()):
        await _write(store, HomeFacts(log_id=log_id.hex(), epoch=epoch, created_ms=now_ms))


async def _from_genesis(store: RetryingStore, key: str) -> HomeFacts:
    """Write ``home.json`` again from the genesis, which a listing shows as the first link. Raises Corrupt."""
    link = Link.unpack(await store.get(key, _HOME_BYTES_MAX), key)
    if not link.is_fence or link.prev != NO_DIGEST or key != link_key(link.epoch - 1, 0):
        raise Corrupt(f"{HOME} is missing, and so is the beginning of the chain: {key} is not one", key=key)
    return await _write(store, HomeFacts(log_id=link.log_id.hex(), epoch=link.epoch - 1, created_ms=link.log_ms))


async def _write(store: RetryingStore, facts: HomeFacts) -> HomeFacts:
    await store.create(HOME, msgspec.json.encode(facts))
    return _decode(await store.get(HOME, _HOME_BYTES_MAX))


def _decode(data: bytes) -> HomeFacts:
    try:
        facts = msgspec.json.decode(data, type=HomeFacts)
        bytes.fromhex(facts.log_id)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corrupt(f"{HOME} cannot be read: {error}", key=HOME) from error
    if facts.format > _FORMAT:
        message = f"{HOME} has format {facts.format}, this program reads up to {_FORMAT}: use a newer one"
        raise Corrupt(message, code="format_too_new", key=HOME)
    return facts
