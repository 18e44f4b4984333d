"""A topic's config as a request gives it, whole (`ConfigBody`) or in part (`PatchBody`).

Both are derived from `TopicConfig`, which has the fields, their bounds and their defaults. A decoder checks the bounds,
and ``/openapi.json`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from tenure.contract.config import Backoff, TopicConfig
from tenure.contract.fields import Durability

__all__ = ["BackoffBody", "BackoffPatch", "ConfigBody", "PatchBody", "config_fields"]

_Field = tuple[str, Any, Any]


def _fields_of(kind: type[msgspec.Struct], **other_types: Any) -> Iterator[_Field]:
    """Return each field with its type and its default; ``other_types`` are those of fields that a request may write in
    another way than the log does.
    """
    types = get_type_hints(kind, include_extras=True) | other_types
    for field in msgspec.structs.fields(kind):
        yield field.name, types[field.name], field.default
        if field.name == "durability":
            yield "durable", bool, UNSET  # its older name, which a request may still use


def _optional(fields: Iterator[_Field], *names: str) -> list[_Field]:
    """Return fields of which the named ones, by default all, may be left out without taking on their default."""
    return [
        (name, type_ | UnsetType, UNSET) if not names or name in names else (name, type_, default)
        for name, type_, default in fields
    ]


def _nullable(fields: Iterator[_Field]) -> list[_Field]:
    """Return fields that may be left out, or null."""
    return [(name, type_ | UnsetType | None, UNSET) for name, type_, _ in fields]


def _base(name: str, fields: list[_Field], *, omit_defaults: bool = False) -> Any:
    return msgspec.defstruct(name, fields, frozen=True, omit_defaults=omit_defaults)


class BackoffBody(_base("BackoffBody", _optional(_fields_of(Backoff)))):  # type: ignore[misc]
    """How long a failed job waits; what is left out has the engine's default."""


_CONFIG = _optional(
    _fields_of(TopicConfig, durability=Durability, retry_backoff=BackoffBody | None), "type", "durability", "durable"
)


class ConfigBody(_base("ConfigBody", _CONFIG, omit_defaults=True)):  # type: ignore[misc]
    """A topic's settings. A PUT replaces: what is left out returns to its default, but ``type`` stays."""


class BackoffPatch(_base("BackoffPatch", _nullable(_fields_of(Backoff)))):  # type: ignore[misc]
    """Which fields of a back-off change; null is the engine's default."""


_PATCH = _nullable(_fields_of(TopicConfig, durability=Durability, retry_backoff=BackoffPatch))


class PatchBody(_base("PatchBody", _PATCH)):  # type: ignore[misc]
    """Which of a topic's settings change: what is left out stays, and null returns a field to its default."""


def config_fields(config: ConfigBody | PatchBody) -> dict[str, Any]:
    """Return the fields as the broker takes them, without those that were left out."""
    fields: dict[str, Any] = _given(config)
    if isinstance(config.retry_backoff, msgspec.Struct):
        fields["retry_backoff"] = _given(config.retry_backoff)
    return fields


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value is not UNSET}
