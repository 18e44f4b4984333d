"""Topics and routers, as the server tells of them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.contract.replies import TopicInfo

__all__ = ["DeletedTopic", "Health", "PutTopic", "Ready", "RouterInfo", "RouterPage", "TopicPage"]


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


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str = ""
    uptime_ms: int = 0


class Ready(msgspec.Struct, frozen=True):
    """Requests are served."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0
