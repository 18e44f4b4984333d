"""A change of some fields of a topic's config: a JSON merge patch (RFC 7396) on top of what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.core.config import TopicConfig, as_dict, parse_config
from tenure.core.names import shown
from tenure.errors import Invalid

__all__ = ["patch_config"]


def patch_config(given: Mapping[str, Any], *, topic: str, existing: TopicConfig) -> TopicConfig:
    """Return ``existing`` with the fields of ``given`` in their place; the other fields stay as they are.

    A null returns a field to its default, which for ``priority``, ``dead_letter`` and ``retry_backoff`` is null itself.
    ``retry_backoff`` is merged field by field in the same way. Raises Invalid for a value that cannot be meant, and
    Conflict (``topic_exists_incompatible``) for another type.
    """
    if not isinstance(given, Mapping):
        raise Invalid(f"config must be an object; got {shown(given)}", field="config")
    stored = as_dict(existing)
    del stored["durable"]
    if "durable" in given and "durability" not in given:  # else the stored class would win over its alias
        del stored["durability"]
    merged = _merge(stored, given)
    if isinstance(given.get("retry_backoff"), Mapping):
        merged["retry_backoff"] = _merge(stored["retry_backoff"] or {}, given["retry_backoff"])
    return parse_config(merged, topic=topic, existing=existing)


def _merge(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**stored, **given}.items() if value is not None}
