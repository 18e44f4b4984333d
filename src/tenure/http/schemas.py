"""Request bodies as msgspec Structs: what validates is what ``/openapi.json`` shows.

Unknown fields are ignored, ours are strict. A field without a value of its own may be null, which means the same as
leaving it out; one with a default may not. Bounds that depend on settings are the broker's to check.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from tenure.core.backoff import FACTOR_MAX

__all__ = [
    "AppendBody",
    "BackoffBody",
    "BackoffPatch",
    "ConfigBody",
    "DeleteBody",
    "DiffBody",
    "PatchBody",
    "RecordBody",
    "RouterBody",
    "Whole",
    "config_fields",
]

U64_MAX: Final = 2**64 - 1
_ANY_JSON: Final = Meta(description="Any JSON value; kept and returned byte for byte.", extra_json_schema={})
_META: Final = Meta(description="A JSON object, kept byte for byte.", extra_json_schema={"type": ["object", "null"]})

Whole = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": U64_MAX})]
"""A u64. What lies above is refused by `Reader`, because msgspec's own bounds end at 2**63."""
Time = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**53 - 1})]
Name = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"})]
Node = Annotated[str, Meta(min_length=1, max_length=128, description="Who writes or works: 1 to 128 bytes.")]
Key = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": 256})]
Tag = Annotated[str, Meta(extra_json_schema={"maxLength": 256})]
Seqs = Annotated[list[Whole], Meta(min_length=1, extra_json_schema={"maxItems": 10_000})]
Match = (
    Tag | Annotated[list[str], Meta(description='["tag","Eq","x"] or ["tag","Glob","x*"]', min_length=3, max_length=3)]
)


Durability = Annotated[
    Literal["memory", "ephemeral", "disk", "fsync"], Meta(description="ephemeral is another word for memory.")
]
Priority = Annotated[int, Meta(ge=-1000, le=1000)]


class BackoffBody(msgspec.Struct, frozen=True):
    """How long a failed job waits; what is left out has the engine's default."""

    min_ms: Whole | UnsetType = UNSET
    max_ms: Whole | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=FACTOR_MAX)] | UnsetType = UNSET
    jitter: bool | UnsetType = UNSET


class ConfigBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic's settings. A PUT replaces: what is left out returns to its default, but ``type`` stays."""

    type: Literal["log", "queue"] | UnsetType = UNSET
    ttl_ms: Whole = 0
    cap_records: Whole = 0
    cap_bytes: Whole = 0
    discard: Literal["old", "reject"] = "old"
    durability: Durability | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    priority: Priority | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: Whole = 120_000
    dedupe_node: bool = True
    lease_ms: Whole = 30_000
    claim_jitter_ms: Whole = 0
    max_deliveries: Whole = 0
    dead_letter: Name | None = None
    leases_durable: bool = False
    max_ack_holes: Whole = 0
    max_in_flight: Whole = 0
    dlq_strategy: Literal["skip", "block", "block_and_dlq"] = "skip"
    retry_backoff: BackoffBody | None = None


class BackoffPatch(msgspec.Struct, frozen=True):
    """Which fields of a back-off change; null is the engine's default."""

    min_ms: Whole | UnsetType | None = UNSET
    max_ms: Whole | UnsetType | None = UNSET
    factor: Annotated[float, Meta(ge=1, le=FACTOR_MAX)] | UnsetType | None = UNSET
    jitter: bool | UnsetType | None = UNSET


class PatchBody(msgspec.Struct, frozen=True):
    """Which of a topic's settings change: what is left out stays, and null returns a field to its default."""

    type: Literal["log", "queue"] | UnsetType | None = UNSET
    ttl_ms: Whole | UnsetType | None = UNSET
    cap_records: Whole | UnsetType | None = UNSET
    cap_bytes: Whole | UnsetType | None = UNSET
    discard: Literal["old", "reject"] | UnsetType | None = UNSET
    durability: Durability | UnsetType | None = UNSET
    durable: bool | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    auto_priority: bool | UnsetType | None = UNSET
    auto_create: bool | UnsetType | None = UNSET
    idempotency_window_ms: Whole | UnsetType | None = UNSET
    dedupe_node: bool | UnsetType | None = UNSET
    lease_ms: Whole | UnsetType | None = UNSET
    claim_jitter_ms: Whole | UnsetType | None = UNSET
    max_deliveries: Whole | UnsetType | None = UNSET
    dead_letter: Name | UnsetType | None = UNSET
    leases_durable: bool | UnsetType | None = UNSET
    max_ack_holes: Whole | UnsetType | None = UNSET
    max_in_flight: Whole | UnsetType | None = UNSET
    dlq_strategy: Literal["skip", "block", "block_and_dlq"] | UnsetType | None = UNSET
    retry_backoff: BackoffPatch | UnsetType | None = UNSET


def config_fields(config: ConfigBody | PatchBody) -> dict[str, Any]:
    """The fields as the broker takes them, without those that were left out."""
    fields: dict[str, Any] = _given(config)
    if isinstance(config.retry_backoff, msgspec.Struct):
        fields["retry_backoff"] = _given(config.retry_backoff)
    return fields


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value is not UNSET}


class RecordBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One record of an append."""

    data: Annotated[Raw, _ANY_JSON]
    tag: Tag | None = None
    node: Node | None = None
    meta: Annotated[Raw, _META] | UnsetType = UNSET  # null means absent, which only a look at the text tells
    delay_ms: Time = 0
    deliver_at: Time | None = None
    unique_key: Key | None = None


class AppendBody(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Records to append, all or none. A key or a client's number makes the call safe to repeat."""

    records: Annotated[list[RecordBody], Meta(extra_json_schema={"minItems": 1, "maxItems": 10_000})]
    node: Node | None = None
    idempotency_key: Key | None = None
    create: bool = True
    config: ConfigBody | None = None
    client_id: Key | None = None
    client_seq: Annotated[int, Meta(ge=0, extra_json_schema={"maximum": 2**63 - 1})] | None = None


class DiffBody(msgspec.Struct, frozen=True, gc=False):
    """Where to read from, and what to leave out."""

    from_seq: Whole = 0
    limit: Whole = 256
    node: Node | list[Node] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: Whole = 0


class DeleteBody(msgspec.Struct, frozen=True, gc=False):
    """Which records to remove: at least one condition; several are ANDed."""

    before_seq: Whole | None = None
    match: Match | None = None
    seqs: Seqs | None = None


class RouterBody(msgspec.Struct, frozen=True, gc=False):
    """A router: what is appended to ``source`` is copied to ``dest``."""

    source: Name
    dest: Name
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Match | None = None
    allow_cycle: bool = False
