"""Create a buffer, or find an existing one by its marker."""

from __future__ import annotations

import secrets

from tenure.buffer.manifest.format import FORMAT, Delta, Genesis, Marker, Requests, State, decode, encode
from tenure.buffer.manifest.keys import MARKER, delta_key, fresh_id
from tenure.buffer.settings import BufferSettings
from tenure.errors import Conflict, Corrupt
from tenure.objects.probe import probe
from tenure.objects.retrying import RetryingStore

__all__ = ["create_buffer", "find_buffer"]

_MARKER_BYTES_MAX = 64 * 1024


async def find_buffer(retrying: RetryingStore, settings: BufferSettings) -> Marker | None:
    """Return the marker of the buffer under the prefix, or None where the prefix is empty.

    Raises Corrupt where batches are left without a manifest, and Conflict where the prefix holds something else.
    """
    data = await retrying.find(MARKER, _MARKER_BYTES_MAX)
    if data is not None:
        return decode(Marker, data, MARKER)
    first = await retrying.find(delta_key(0), settings.delta_bytes_max)
    if first is not None:  # its creator was stopped before it wrote the marker
        return await _mark(retrying, decode(Delta, first, delta_key(0)).buffer)
    async for info in retrying.list_objects("manifest/checkpoint-"):  # only the marker is lost: write it again
        if (data := await retrying.find(info.key, settings.checkpoint_bytes_max)) is not None:
            return await _mark(retrying, decode(State, data, info.key).buffer)
    async for info in retrying.list_objects(""):
        if info.key.startswith("probe/"):
            continue
        if await retrying.exists(MARKER) or await retrying.exists(delta_key(0)):  # created since the first look
            return await find_buffer(retrying, settings)
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


async def create_buffer(retrying: RetryingStore, settings: BufferSettings, *, writer: str, ts_ms: int) -> Marker:
    """Probe the store, then create the first delta and the marker; concurrent calls create one buffer and return it.

    Raises StoreRefused (``store_unconditional``) for a store that would lose commits.
    """
    await probe(retrying)
    delta = Delta(
        format=FORMAT,
        buffer=fresh_id(ts_ms),
        number=0,
        prev="",
        writer=writer,
        nonce=secrets.token_hex(8),
        ts_ms=ts_ms,
        ops=[Genesis(settings.free_deltas, list(settings.initial_groups))],
        requests=Requests(),  # the creator's first commit has them
    )
    created = await retrying.create_or_read(delta_key(0), encode(delta), limit_bytes=settings.delta_bytes_max)
    if not created.is_mine:
        delta = decode(Delta, created.theirs or b"", delta_key(0))  # one beyond the limit is as damaged as none
    return await _mark(retrying, delta.buffer)


async def _mark(retrying: RetryingStore, buffer: str) -> Marker:
    await retrying.create(MARKER, encode(Marker(FORMAT, buffer)))
    return decode(Marker, await retrying.get(MARKER, _MARKER_BYTES_MAX), MARKER)
