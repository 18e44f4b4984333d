"""The probe: make a store show that it creates a key only once, also for writers that race.

Everything that is built on a store here rests on create-if-absent. Some stores ignore the condition; others test it and
write in two steps, and keep it only while nobody else writes. So writers race for a key, each over a connection of its
own: one of them may win, and every read afterwards returns the winner's bytes. A key that was looked for before it was
created must be seen afterwards, which a cache of missing keys would prevent, and a deleted key can be created again.
Passing is evidence, not proof: docs/reference/stores.md lists the stores that promise it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Final

from tenure.errors import Invalid, TenureError
from tenure.objects.retrying import Created, RetryingStore
from tenure.objects.store import ObjectExists, ObjectStore, OutcomeUnknown, StoreRefused, open_store

__all__ = ["ROUNDS", "WRITERS", "probe"]

ROUNDS: Final = 8
WRITERS: Final = 8
_KEYS_MAX: Final = 3
"""Keys that are tried for a second create: a late copy of the first create may take one of them."""
_BYTES_MAX: Final = 1_024


async def probe(retrying: RetryingStore, *, rounds: int = ROUNDS, writers: int = WRITERS) -> None:
    """Race for keys of the store, and raise StoreRefused (``store_unconditional``) if it does not create them once.

    Where no call fails this takes ``rounds * (2 * writers + 2) + 4`` requests, by default 148, of which 66 are writes,
    and leaves nothing in the store. Raises OutcomeUnknown where the store does not answer, and StoreRefused or
    StoreFull where it refuses to store anything.
    """
    prefix = f"probe/{secrets.token_hex(16)}"
    racers = [retrying.over(_reopen(retrying.store.inner)) for _ in range(writers)]
    keys = [f"{prefix}/race-{number}" for number in range(rounds)]
    try:
        await _race_for_all(keys, racers)
        await _create_again(prefix, retrying, keys)
    except BaseException:
        with contextlib.suppress(TenureError):  # the first failure is the reason
            await retrying.delete(keys)
        raise
    await retrying.delete(keys)


def _reopen(store: ObjectStore) -> ObjectStore:
    """Return the same store with connections of its own.

    A directory has none, and the URL of a store that is none of ours does not lead to it: those are returned as given.
    """
    if store.url.startswith("file:"):
        return store
    try:
        again = open_store(store.url)
    except Invalid:
        return store
    return again if type(again) is type(store) else store


async def _race_for_all(keys: Sequence[str], racers: Sequence[RetryingStore]) -> None:
    """Race for every key at once: a store may let the losers of one race wait for seconds.

    Raises what is wrong with the store, if that is known of any race, before what is unknown of another.
    """
    races = (_race(key, racers, reader=racers[number % len(racers)]) for number, key in enumerate(keys))
    ended = await asyncio.gather(*races, return_exceptions=True)
    failures = [failure for failure in ended if failure is not None]
    if failures:
        raise next((failure for failure in failures if not isinstance(failure, OutcomeUnknown)), failures[0])


async def _race(key: str, racers: Sequence[RetryingStore], *, reader: RetryingStore) -> None:
    """Create one key through every racer at once, each with bytes of its own, and judge what they were answered.

    The reader looks for the key before, so that a cache of missing keys shows itself.
    """
    await reader.exists(key)
    entries = [f"{number} {key}".encode() for number in range(len(racers))]
    creates = (
        racer.create_or_read(key, entry, limit_bytes=_BYTES_MAX) for racer, entry in zip(racers, entries, strict=True)
    )
    answers = await asyncio.gather(*creates, return_exceptions=True)
    known: dict[bytes, Created] = {}
    for entry, answer in zip(entries, answers, strict=True):
        if isinstance(answer, Created):
            known[entry] = answer
        elif not isinstance(answer, OutcomeUnknown):
            raise answer
    if (fault := _fault(known, entries, found=await _read(key, reader))) is not None:
        raise _refusal(reader, fault)


async def _read(key: str, reader: RetryingStore) -> bytes | None:
    """Return the bytes at the key, or None where the reader does not see it, by its size or by its content."""
    return await reader.find(key, _BYTES_MAX) if await reader.exists(key) else None


def _fault(known: dict[bytes, Created], entries: Sequence[bytes], *, found: bytes | None) -> str | None:
    """Return what the store did wrong in one race, or None; a racer that is not known may have won or not.

    Raises OutcomeUnknown where no racer knows anything, and nothing is there.
    """
    winners = [entry for entry, answer in known.items() if answer.is_mine]
    if len(winners) > 1:
        return f"{len(winners)} of {len(entries)} writers that raced for a key were told that they created it"
    if found is None and not known:
        raise OutcomeUnknown("the store answered no create of the probe: repeat this once it does")
    if found is None:
        return "a key that was looked for and then created is still reported as missing"
    if winners not in ([], [found]) or found not in entries or (found in known and not known[found].is_mine):
        return "a key holds other bytes than the writer that created it had sent"
    if any(answer.theirs != found for answer in known.values() if not answer.is_mine):
        return "two reads of a key that was created once returned different bytes"
    return None


async def _create_again(prefix: str, retrying: RetryingStore, keys: list[str]) -> None:
    """Create, delete and create a key, and add it to ``keys``; raise StoreRefused if no second create succeeds."""
    for number in range(_KEYS_MAX):
        keys.append(key := f"{prefix}/again-{number}")
        await retrying.create_own(key, b"first")
        await retrying.delete([key])
        try:
            if await retrying.create(key, b"second"):
                return
        except OutcomeUnknown:
            if not await _is_blocked(key, retrying):
                raise
    raise _refusal(retrying, "a key that was deleted could not be created again")


async def _is_blocked(key: str, retrying: RetryingStore) -> bool:
    """Return whether the store reports that the key is taken although it has no object."""
    try:
        await retrying.store.put_new(key, b"second")
    except ObjectExists:
        return not await retrying.exists(key)
    return False


def _refusal(retrying: RetryingStore, fault: str) -> StoreRefused:
    return StoreRefused(
        f"this store does not keep create-if-absent: {fault}. Writers would overwrite each other's commits: "
        "use a store that promises it, also for writers that race",
        code="store_unconditional",
        url=retrying.store.url,
    )
