"""Hints: what each member of a home writes again and again, to say that it lives. The chain alone is a proof.

A member that is killed leaves its hint, and one that lost its disk comes back under another id. So those who look read
the newest first, by the store's clock, and remove what is old: a member that lives writes its hint again soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from tenure.chain.keys import MEMBERS, hint_key
from tenure.objects.retrying import RetryingStore
from tenure.objects.store import ObjectInfo

__all__ = ["Hint", "Listed", "list_hints", "read_hint", "remove_hint", "write_hint"]

_HINT_BYTES_MAX = 64 * 1024
_HINTS_MAX = 100
_READS_MAX = 8
_STAMP_MS = 2_000
"""Some stores tell the time of an object in whole seconds: one this young may have been written again since."""
_REMOVED_MAX = 1_000


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
    #: The features of a log that it can read; None where it does not say, as the version before.
    reads: tuple[str, ...] | None = None
    #: Why it cannot take over, whatever happens; empty where it can.
    trouble: str = ""

    def cannot_read(self, features: Iterable[tuple[str, str]]) -> list[str]:
        """Return the names of the features, each with the version that first reads it, that this member cannot read."""
        if self.reads is not None:
            return [name for name, _ in features if name not in self.reads]
        return [name for name, since in features if _numbers(since) > _numbers(self.version)]


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as one can be compared; what is no version comes before all."""
    parts = version.partition("+")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


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


class Listed(NamedTuple):
    """A hint, and when it was written, by the store's clock."""

    hint: Hint
    modified_ms: int


async def list_hints(store: RetryingStore, known: Mapping[str, Listed], *, keep_ms: int) -> dict[str, Listed]:
    """Return the hints of the members that wrote last, by the ids of their directories: a limited number of them.

    Those that were ``known`` and not written since are not read again. Those that are ``keep_ms`` older than the newest
    one are removed from the home.
    """
    infos = sorted([info async for info in store.list_objects(MEMBERS)], key=lambda info: -info.modified_ms)
    if not infos:
        return {}
    newest_ms = infos[0].modified_ms
    old = [info.key for info in infos if newest_ms - info.modified_ms > keep_ms]
    if old:
        await store.delete(old[:_REMOVED_MAX])
    found: dict[str, Listed] = {}
    shown = infos[: min(_HINTS_MAX, len(infos) - len(old))]
    for start in range(0, len(shown), _READS_MAX):
        portion = [_read_listed(store, info, known, newest_ms) for info in shown[start : start + _READS_MAX]]
        for directory, listed in await asyncio.gather(*portion):
            if listed is not None:
                found[directory] = listed
    return found


async def _read_listed(
    store: RetryingStore, info: ObjectInfo, known: Mapping[str, Listed], newest_ms: int
) -> tuple[str, Listed | None]:
    directory = info.key.removeprefix(MEMBERS).removesuffix(".json")
    before = known.get(directory)
    if before is not None and before.modified_ms == info.modified_ms and newest_ms - info.modified_ms > _STAMP_MS:
        return directory, before
    hint = await read_hint(store, directory)
    return directory, None if hint is None else Listed(hint, info.modified_ms)


async def remove_hint(store: RetryingStore, directory: str) -> None:
    """Remove the hint of a member that ends."""
    await store.delete([hint_key(directory)])
