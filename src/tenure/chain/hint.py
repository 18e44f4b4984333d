"""Hints: what each member of a home writes again and again, to say that it lives. The chain alone is a proof."""

from __future__ import annotations

import msgspec

from tenure.chain.keys import MEMBERS, hint_key
from tenure.objects.retrying import RetryingStore

__all__ = ["Hint", "list_hints", "read_hint", "remove_hint", "write_hint"]

_HINT_BYTES_MAX = 64 * 1024
_HINTS_MAX = 100


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """What one member says of itself; ``count`` makes each writing differ from the one before."""

    url: str
    #: Whether it leads, and the next slot of the chain for it.
    leads: bool = True
    epoch: int
    number: int = 0
    version: str = ""
    #: Of this life of the process: a later one counts from 1 again.
    life: str = ""
    count: int = 0


async def write_hint(store: RetryingStore, directory: str, hint: Hint) -> None:
    """Write the hint of the member whose directory has this id."""
    await store.put(hint_key(directory), msgspec.json.encode(hint))


async def read_hint(store: RetryingStore, directory: str) -> Hint | None:
    """Return the hint of a member, None where there is none, or none that can be read."""
    data = await store.find(hint_key(directory), _HINT_BYTES_MAX)
    try:
        return None if data is None else msgspec.json.decode(data, type=Hint)
    except msgspec.MsgspecError:
        return None


async def list_hints(store: RetryingStore) -> dict[str, Hint]:
    """Return the hints of all members by the ids of their directories, a limited number of them."""
    found: dict[str, Hint] = {}
    async for info in store.list_objects(MEMBERS):
        directory = info.key.removeprefix(MEMBERS).removesuffix(".json")
        if (hint := await read_hint(store, directory)) is not None:
            found[directory] = hint
        if len(found) == _HINTS_MAX:
            break
    return found


async def remove_hint(store: RetryingStore, directory: str) -> None:
    """Remove the hint of a member that ends."""
    await store.delete([hint_key(directory)])
