"""The hint that a leader lives: an object that it writes again and again. The chain alone is a proof."""

from __future__ import annotations

import msgspec

from tenure.chain.keys import hint_key
from tenure.objects.retrying import RetryingStore

__all__ = ["HintContent", "read_hint", "remove_hint", "write_hint"]

_HINT_BYTES_MAX = 64 * 1024


class HintContent(msgspec.Struct, frozen=True, kw_only=True):
    """What the hint says; ``count`` makes each writing differ from the one before."""

    url: str
    epoch: int
    count: int


async def write_hint(store: RetryingStore, nonce: str, content: HintContent) -> None:
    """Write the hint of the leader whose fence has this nonce."""
    await store.put(hint_key(nonce), msgspec.json.encode(content))


async def read_hint(store: RetryingStore, nonce: str) -> HintContent | None:
    """Return the hint, None where there is none, or none that can be read."""
    data = await store.find(hint_key(nonce), _HINT_BYTES_MAX)
    try:
        return None if data is None else msgspec.json.decode(data, type=HintContent)
    except msgspec.MsgspecError:
        return None


async def remove_hint(store: RetryingStore, nonce: str) -> None:
    """Remove the hint of a leader that ends."""
    await store.delete([hint_key(nonce)])
