"""Records as producers pass them and as they are stored, and lease ids as text."""

from __future__ import annotations

from typing import Final

import msgspec

from tenure.errors import Invalid

__all__ = ["Record", "Stored", "lease_id", "parse_lease_id"]


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One record as a producer passes it; ``data`` and ``meta`` are JSON text, kept byte for byte.

    ``delay_ms`` counts from the append, ``deliver_at`` is wall time in ms; both hide a job from claims until then.
    While a job with ``unique_key`` lives in a queue, appending the key again returns the seq of that job.
    ``hops`` counts the routers that a copy has passed; only forwarding sets it.
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
    """One record as it is stored and read back."""

    seq: int
    ts: int
    data: bytes
    tag: str | None = None
    node: str | None = None
    meta: bytes | None = None
    hops: int = 0


_PREFIX: Final = "lease_"


def lease_id(number: int) -> str:
    """Return the lease id of a lease number."""
    return f"{_PREFIX}{number:x}"


def parse_lease_id(value: str) -> int:
    """Return the number of a lease id, or 0, which matches no lease, for any other text. Raises Invalid for no text."""
    if not isinstance(value, str):
        raise Invalid("a lease id is a string, as a claim answered it")
    try:
        return int(value[len(_PREFIX) :], 16) if value.startswith(_PREFIX) and len(value) < 40 else 0
    except ValueError:
        return 0
