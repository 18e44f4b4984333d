"""Check the limits: the caps of a topic, the limits of the broker as a whole, and the share of a caller."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.contract.config import TopicConfig, clamp_durations, parse_config, patch_config
from tenure.contract.names import check_topic_name
from tenure.contract.share import Share
from tenure.core.priority import share_of
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, NotFound, Overloaded

__all__ = [
    "check_broker_room",
    "check_made_by_use",
    "check_new_topic",
    "check_not_retired",
    "check_topic_room",
    "read_config",
    "read_patch",
    "room_for",
]


def read_config(
    state: State, given: Mapping[str, Any], *, topic: str, existing: TopicConfig | None = None
) -> TopicConfig:
    """Return the config that a caller asks for, within the limits of this broker. Raises Invalid and Conflict."""
    return _within_limits(state, parse_config(given, topic=topic, existing=existing))


def read_patch(state: State, given: Mapping[str, Any], *, topic: str, existing: TopicConfig) -> TopicConfig:
    """Return a config with the changes that a caller asks for, within the limits. Raises as `read_config`."""
    return _within_limits(state, patch_config(given, topic=topic, existing=existing))


def _within_limits(state: State, config: TopicConfig) -> TopicConfig:
    settings = state.settings
    check_replicated(state, config)
    return clamp_durations(
        config, window_ms_max=settings.idempotency_window_ms_max, backoff_ms_max=settings.delay_ms_max
    )


def check_replicated(state: State, config: TopicConfig) -> None:
    """Raise Conflict where a topic asks for more copies than the one on this machine's disk."""
    if config.durability == "replicated" and not state.has_home:
        raise Conflict(
            'durability "replicated" needs a log that lives in a store, and this one has only its disk: '
            "serve with --home, or use fsync",
            code="not_replicated",
        )


def check_topic_room(topic: Topic | None, config: TopicConfig, *, records: int, size: int) -> None:
    """Raise Overloaded unless records fit under the caps of a topic that rejects when full; None is a new topic."""
    if config.discard != "reject":
        return
    held, held_bytes = (topic.count, topic.bytes) if topic is not None else (0, 0)
    for name, cap, total in (
        ("cap_records", config.cap_records, held + records),
        ("cap_bytes", config.cap_bytes, held_bytes + size),
    ):
        if cap and total > cap:
            raise Overloaded(
                f"the topic is full: {total} would pass its {name} of {cap}", code="topic_full", limit=name, max=cap
            )


def room_for(topic: Topic | None, config: TopicConfig, ends: Sequence[int]) -> int:
    """Return how many records, the first of which end at these offsets, fit under the caps of a topic that rejects when
    full; None is a new topic.
    """
    if config.discard != "reject":
        return len(ends)
    held, held_bytes = (topic.count, topic.bytes) if topic is not None else (0, 0)
    room = max(config.cap_records - held, 0) if config.cap_records else len(ends)
    if config.cap_bytes:
        room = min(room, bisect_right(ends, config.cap_bytes - held_bytes))
    return min(room, len(ends))


def check_broker_room(state: State, config: TopicConfig, *, size: int, share: Share | None) -> None:
    """Raise Overloaded unless the disk keeps up and the broker as a whole has room for a topic of this config.

    A priority below 0 leaves a part of both to the others, so topics of low priority are refused first; a caller whose
    bytes make up its share of those that wait for a sync is refused before all others.
    """
    settings, priority = state.settings, config.priority
    if share is not None:
        share.take_bytes(size, appended=state.appended_bytes, synced=state.synced_bytes)
    if state.unsynced_bytes > share_of(settings.pending_bytes_max, priority):
        raise Overloaded("the disk is behind: too many bytes wait for a sync; send the same request later")
    total = settings.total_bytes_max
    if total and state.live_bytes + size > share_of(total, priority):
        raise Overloaded("the broker is full: ack or delete records first", limit="total_bytes_max", max=total)


def check_new_topic(state: State, name: str, *, share: Share | None = None) -> None:
    """Raise unless a topic of this name may be created: a legal name, and room for one more, also in the share."""
    check_topic_name(name)
    limit = state.settings.topics_max
    if limit and len(state.topics) >= limit:
        raise Overloaded(
            f"there are {limit} topics, which is the limit: delete some first", limit="topics_max", max=limit
        )
    if share is not None:
        share.take_topic(name)


def check_made_by_use(state: State, name: str, *, share: Share | None = None) -> None:
    """Raise unless an append or a router may create a topic of this name; NotFound where only a put may."""
    check_not_retired(state, name)
    check_new_topic(state, name, share=share)


def check_not_retired(state: State, name: str) -> None:
    """Raise NotFound where a topic of this name was deleted whose ``auto_create`` was false."""
    if name in state.retired:
        raise NotFound(
            f"topic {name!r} was deleted and its auto_create was false: put it to have it again",
            code="topic_not_found",
            topic=name,
        )
