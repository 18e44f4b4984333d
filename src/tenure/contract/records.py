"""Records: as a producer hands one in, and as it is read back."""

from __future__ import annotations

import msgspec

__all__ = ["Record", "Stored"]


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One record as a producer hands it in; ``data`` and ``meta`` are JSON text, kept byte for byte.

    ``delay_ms`` counts from the append, ``deliver_at`` is wall time in ms; both hide a job from claims until then.
    While a job with ``unique_key`` lives in a queue, appending the key again answers that job.
    ``hops`` counts the routers a copy has passed; only forwarding sets it.
    """

    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    delay_ms: int = 0
    deliver_at: int | None = None
    unique_key: str | None = None
    hops: int = 0


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One record as it is read back."""

    seq: int
    ts: int
    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    hops: int = 0
