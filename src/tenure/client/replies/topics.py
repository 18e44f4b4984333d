"""Topics and routers, as the server tells of them."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["DeletedTopic", "PutTopic", "QueueCounts", "RouterInfo", "RouterPage", "TopicInfo", "TopicPage"]


class QueueCounts(msgspec.Struct, frozen=True):
    """How many jobs stand where; ``dead`` lie dead now, ``dead_lettered`` were dead-lettered so far."""

    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    parked: int = 0
    dead: int = 0
    dead_lettered: int = 0
    oldest_ready_ms: int | None = None
    ack_holes: int = 0


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic's state and config; ``queue`` is None on a log."""

    topic: str
    type: str
    config: dict[str, Any]
    head_seq: int = 0
    durable_seq: int = 0
    earliest_seq: int = 1
    next_seq: int = 1
    count: int = 0
    bytes: int = 0
    effective_priority: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueCounts | None = None


class PutTopic(msgspec.Struct, frozen=True):
    """A topic as it stands after a put, with every field of its config."""

    topic: str
    type: str
    created: bool
    config: dict[str, Any]


class TopicPage(msgspec.Struct, frozen=True):
    """Topics by name; ``next_cursor`` is None on the last page."""

    topics: list[TopicInfo]
    next_cursor: str | None = None


class DeletedTopic(msgspec.Struct, frozen=True):
    """Whether there was such a topic, and which routers went with it."""

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class RouterInfo(msgspec.Struct, frozen=True):
    """A router and how far it has come."""

    router: str
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    filter: Any = None
    allow_cycle: bool = False
    forwarded_total: int = 0
    missed_total: int = 0
    created: bool = False


class RouterPage(msgspec.Struct, frozen=True):
    """Routers by name; ``next_cursor`` is None on the last page."""

    routers: list[RouterInfo]
    next_cursor: str | None = None
