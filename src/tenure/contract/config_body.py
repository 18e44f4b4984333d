"""A topic's config as a request gives it, whole or in part: what validates is what ``/openapi.json`` shows.

`contract.config.TopicConfig` is the same as the log keeps it, with every value in it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from tenure.contract.fields import Durability, Factor, Name, Priority, Whole

__all__ = ["BackoffBody", "BackoffPatch", "ConfigBody", "PatchBody", "config_fields"]


class BackoffBody(msgspec.Struct, frozen=True):
    """How long a failed job waits; what is left out has the engine's default."""

    min_ms: Whole | UnsetType = UNSET
    max_ms: Whole | UnsetType = UNSET
    factor: Factor | UnsetType = UNSET
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
    factor: Factor | UnsetType | None = UNSET
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
    """Return the fields as the broker takes them, without those that were left out."""
    fields: dict[str, Any] = _given(config)
    if isinstance(config.retry_backoff, msgspec.Struct):
        fields["retry_backoff"] = _given(config.retry_backoff)
    return fields


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value is not UNSET}
