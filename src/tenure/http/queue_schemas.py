"""What the queue and watch endpoints take: what validates here is what ``/openapi.json`` shows.

Bounds that clamp are not written here, because a schema would refuse what the contract only clamps. As in `schemas`, a
field without a value of its own may be null, and one with a default may not.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tenure.http.schemas import U64_MAX, Key, Match, Name, Node, Whole

__all__ = ["AckBody", "ClaimBody", "ExtendBody", "NackBody", "RedriveBody", "WatchBody", "WatchFrom"]

Seqs = Annotated[list[Whole], Meta(min_length=1, description="1 to 1000 seqs")]
LeaseIds = Annotated[list[str], Meta(description="One lease id per seq, in the same order")]


class ClaimBody(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Lease up to ``max`` jobs to ``node``."""

    node: Node
    max: Whole = 1
    lease_ms: Whole | None = None
    wait_ms: Whole = 0
    claim_id: Key | None = None
    auto_ack: bool = False


class AckBody(msgspec.Struct, frozen=True, kw_only=True):
    """Complete jobs: those in ``seqs``, or everything still held under ``lease_id``."""

    node: Node
    seqs: Seqs | None = None
    lease_ids: LeaseIds | None = None
    lease_id: str | None = None
    strict: bool = False


class NackBody(AckBody, frozen=True, kw_only=True):
    """Give jobs back, now or after ``delay_ms``; ``dead`` dead-letters them at once."""

    delay_ms: Whole | None = None
    reason: str | None = None
    dead: bool = False


class ExtendBody(AckBody, frozen=True, kw_only=True):
    """Set the deadline of held jobs to now plus ``lease_ms``; it may be left out where ``lease_id`` is given."""

    lease_ms: Whole | None = None


class RedriveBody(msgspec.Struct, frozen=True, kw_only=True):
    """Put dead letters back to work: all, or those that every condition takes."""

    to: Name | None = None
    match: Match | None = None
    seqs: Seqs | None = None
    reason_like: str | None = None
    limit: Annotated[int, Meta(ge=1, extra_json_schema={"maximum": U64_MAX})] | None = None
    reset_deliveries: bool = True


class WatchFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where to begin on one topic: above ``from_seq``, or with ``tail`` at its head."""

    from_seq: Whole = 0
    tail: bool = False


class WatchBody(msgspec.Struct, frozen=True, kw_only=True):
    """Follow topics over one stream."""

    topics: Annotated[dict[str, WatchFrom], Meta(min_length=1, max_length=256)]
    node: Node | list[Node] | None = None
    limit: Whole = 256
    max_batch_bytes: Whole = 262_144
    heartbeat_ms: Whole | None = None
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"
