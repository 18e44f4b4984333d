"""How a buffer comes to be, how it is found again, and what a store must show first."""

from __future__ import annotations

import secrets

from tenure.buffer.manifest.format import FORMAT, Delta, Genesis, Marker, State, decode, encode
from tenure.buffer.manifest.keys import MARKER, delta_key, fresh_id
from tenure.buffer.settings import BufferSettings
from tenure.buffer.store.interface import ObjectExists, OutcomeUnknown, StoreRefused
from tenure.buffer.store.retrying import RetryingStore
from tenure.errors import Conflict, Corrupt

__all__ = ["create_buffer", "find_buffer", "probe"]

_MARKER_BYTES_MAX = 64 * 1024


async def probe(patient: RetryingStore) -> None:
    """Create the same key twice: a store that lets the second one through would lose commits, and is refused."""
    key = f"probe/{secrets.token_hex(16)}"
    try:
        await patient.create_own(key, b"first")
        for attempt in range(10):
            try:
                await patient.store.put_new(key, b"second")
            except ObjectExists:
                return
            except OutcomeUnknown:
                await patient.pause(attempt, 1_000)
                continue
            raise StoreRefused(
                "this store ignores create-if-absent: writers would overwrite each other's commits. Use another one",
                code="store_unconditional",
                url=patient.store.url,
            )
        raise OutcomeUnknown("the store does not answer", url=patient.store.url)
    finally:
        await patient.delete([key])


async def find_buffer(patient: RetryingStore, settings: BufferSettings) -> Marker | None:
    """The buffer under the prefix, or None where the prefix is empty.

    Raises Corrupt where batches are left without a manifest, and Conflict where the prefix holds something else.
    """
    data = await patient.find(MARKER, _MARKER_BYTES_MAX)
    if data is not None:
        return decode(Marker, data, MARKER)
    first = await patient.find(delta_key(0), settings.delta_bytes_max)
    if first is not None:  # whoever created it was stopped before the marker
        return await _mark(patient, decode(Delta, first, delta_key(0)).buffer)
    async for info in patient.listed("manifest/checkpoint-"):  # the marker alone is lost: it can be had again
        if (data := await patient.find(info.key, settings.checkpoint_bytes_max)) is not None:
            return await _mark(patient, decode(State, data, info.key).buffer)
    async for info in patient.listed(""):
        if info.key.startswith("probe/"):
            continue
        if await patient.exists(MARKER) or await patient.exists(delta_key(0)):  # created while we looked
            return await find_buffer(patient, settings)
        if info.key.startswith(("data/", "manifest/", "quarantine/", "plan/")):
            raise Corrupt(
                f"the manifest of this buffer is gone, but {info.key} is there: "
                "restore it, or use another prefix; sequences would be given twice",
                code="manifest_missing",
                key=info.key,
            )
        raise Conflict(
            f"the prefix holds something else: {info.key}. Use an empty one", code="foreign_prefix", key=info.key
        )
    return None


async def create_buffer(patient: RetryingStore, settings: BufferSettings, *, writer: str, ts_ms: int) -> Marker:
    """Create the first delta, then the marker; of two that try at once, one buffer comes to be."""
    delta = Delta(
        format=FORMAT,
        buffer=fresh_id(ts_ms),
        number=0,
        prev="",
        writer=writer,
        nonce=secrets.token_hex(8),
        ts_ms=ts_ms,
        ops=[Genesis(settings.free_deltas, list(settings.initial_groups))],
    )
    if await patient.create(delta_key(0), encode(delta)):
        return await _mark(patient, delta.buffer)
    theirs = await patient.get(delta_key(0), settings.delta_bytes_max)
    return await _mark(patient, decode(Delta, theirs, delta_key(0)).buffer)


async def _mark(patient: RetryingStore, buffer: str) -> Marker:
    await patient.create(MARKER, encode(Marker(FORMAT, buffer)))
    return decode(Marker, await patient.get(MARKER, _MARKER_BYTES_MAX), MARKER)
