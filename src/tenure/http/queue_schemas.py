"""What the queue and watch endpoints take, as Structs: what validates here is what ``/openapi.json`` shows.

Bounds that clamp are not written here, because a schema would refuse what the contract only clamps. A null stands for
a field that was left out.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["Ack", "ClaimJobs", "Extend", "Nack", "RedriveJobs", "Watch", "WatchTopic"]

Whole = Annotated[int, msgspec.Meta(ge=0)]
Node = Annotated[str, msgspec.Meta(min_length=1, description="1 to 128 bytes")]


class ClaimJobs(msgspec.Struct, kw_only=True, gc=False):
    """Lease up to ``max`` jobs to ``node``."""

    node: Node
    max: Whole | None = None
    lease_ms: Whole | None = None
    wait_ms: Whole | None = None
    claim_id: str | None = None
    auto_ack: bool | None = None


class _Settle(msgspec.Struct, kw_only=True):
    node: Node
    seqs: list[Whole] | None = None
    lease_ids: list[str] | None = None
    lease_id: str | None = None
    strict: bool | None = None


class Ack(_Settle, kw_only=True):
    """Complete jobs: those in ``seqs``, or everything still held under ``lease_id``."""


class Nack(_Settle, kw_only=True):
    """Give jobs back, now or after ``delay_ms``; ``dead`` dead-letters them at once."""

    delay_ms: Whole | None = None
    reason: str | None = None
    dead: bool | None = None


class Extend(_Settle, kw_only=True):
    """Set the deadline of held jobs to now plus ``lease_ms``."""

    lease_ms: Whole | None = None


class RedriveJobs(msgspec.Struct, kw_only=True):
    """Put dead letters back to work."""

    to: str | None = None
    match: str | list[str] | None = None
    seqs: list[Whole] | None = None
    reason_like: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    reset_deliveries: bool | None = None


class WatchTopic(msgspec.Struct, kw_only=True):
    """Where to begin on one topic: above ``from_seq``, or with ``tail`` at its head."""

    from_seq: Whole | None = None
    tail: bool | None = None


class Watch(msgspec.Struct, kw_only=True):
    """Follow topics over one stream."""

    topics: dict[str, WatchTopic | None]
    node: str | list[str] | None = None
    limit: Whole | None = None
    max_batch_bytes: Whole | None = None
    heartbeat_ms: Whole | None = None
    include_meta: bool | None = None
    include_tags: bool | None = None
    include_data: bool | None = None
    consistency: Literal["eventual", "strong"] | None = None
