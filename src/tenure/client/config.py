"""A topic's config as keyword arguments: a type checker finds a misspelt name, and `check_config` before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict

from tenure.contract.config import DEFAULTS, parse_config, patch_config
from tenure.errors import Invalid

__all__ = [
    "DELIVERIES_MAX",
    "BackoffFields",
    "BackoffPatch",
    "ConfigFields",
    "PatchFields",
    "careful_queue",
    "check_config",
    "check_patch",
]

DELIVERIES_MAX: Final = 5
_NAME_CHARS_MAX: Final = 255


class BackoffFields(TypedDict, total=False):
    """How long a failed job waits: from ``min_ms``, times ``factor`` for each delivery, up to ``max_ms``."""

    min_ms: int
    max_ms: int
    factor: float
    jitter: bool


class ConfigFields(TypedDict, total=False):
    """The settings of a topic; docs/reference/topic-config.md says what each does."""

    type: Literal["log", "queue"]
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durability: Literal["memory", "disk", "fsync", "replicated"]
    durable: bool
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    max_ack_holes: int
    max_in_flight: int
    dlq_strategy: Literal["skip", "block", "block_and_dlq"]
    retry_backoff: BackoffFields | None


class BackoffPatch(TypedDict, total=False):
    """Which fields of a back-off change; None is the default."""

    min_ms: int | None
    max_ms: int | None
    factor: float | None
    jitter: bool | None


class PatchFields(TypedDict, total=False):
    """Which settings of a topic change: what is left out stays, None returns a field to its default."""

    ttl_ms: int | None
    cap_records: int | None
    cap_bytes: int | None
    discard: Literal["old", "reject"] | None
    durability: Literal["memory", "disk", "fsync", "replicated"] | None
    durable: bool | None
    priority: int | None
    auto_priority: bool | None
    auto_create: bool | None
    idempotency_window_ms: int | None
    dedupe_node: bool | None
    lease_ms: int | None
    claim_jitter_ms: int | None
    max_deliveries: int | None
    dead_letter: str | None
    leases_durable: bool | None
    max_ack_holes: int | None
    max_in_flight: int | None
    dlq_strategy: Literal["skip", "block", "block_and_dlq"] | None
    retry_backoff: BackoffPatch | None


def careful_queue(name: str) -> ConfigFields:
    """Return the config of a queue that a put creates: fsync, five deliveries, then dead letters to ``<name>.dead``.

    The wire's own defaults are those of a plain topic; Python callers and the command line get the safe ones. Where
    the name leaves no room for that ending, dead jobs stay parked in the queue.
    """
    config: ConfigFields = {"type": "queue", "durability": "fsync", "max_deliveries": DELIVERIES_MAX}
    if len(name) + len(".dead") <= _NAME_CHARS_MAX:
        config["dead_letter"] = f"{name}.dead"
    return config


def check_config(config: Mapping[str, Any], *, topic: str) -> None:
    """Raise Invalid where a field is unknown or its value is bad. The server would ignore an unknown field without an
    error.
    """
    _check_names(config, ConfigFields.__optional_keys__)
    parse_config(config, topic=topic)


def check_patch(config: Mapping[str, Any], *, topic: str) -> None:
    """Raise Invalid as `check_config`, for a patch; a back-off is not checked, because the server merges it."""
    _check_names(config, PatchFields.__optional_keys__)
    alone = {name: value for name, value in config.items() if name != "retry_backoff"}
    patch_config(alone, topic=topic, existing=DEFAULTS)


def _check_names(config: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in config:
        if name == "type" and name not in known:
            raise Invalid("the type of a topic does not change: delete it first, or use another name", field="type")
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise Invalid(f"a topic has no setting {name!r}{hint}", field=str(name))
