"""Replies about topics, their config and the counts of a queue, about routers, and about the server itself."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tenure.contract.config import Backoff, TopicConfig

__all__ = [
    "BackoffInfo",
    "ConfigInfo",
    "DeletedTopic",
    "Health",
    "Page",
    "PutTopic",
    "QueueCounts",
    "Ready",
    "RouterInfo",
    "RouterPage",
    "TopicInfo",
    "TopicPage",
    "config_info",
]

T = TypeVar("T")


class BackoffInfo(Backoff, frozen=True, gc=False, array_like=False, kw_only=True):
    """The retry back-off of a queue, as a reply shows it."""


class ConfigInfo(TopicConfig, frozen=True, array_like=False, kw_only=True):
    """Every setting of a topic, as a reply shows it: an object, where the log has an array.

    ``durable`` is the older name for ``durability == "fsync"``. ``dead_letter_hidden`` is set where the caller's key
    does not reach the dead-letter topic, which is then left out.
    """

    retry_backoff: BackoffInfo | None = None
    durable: bool = False
    dead_letter_hidden: bool | UnsetType = UNSET


def config_info(config: TopicConfig) -> ConfigInfo:
    """Return a topic's config as replies show it."""
    fields = msgspec.structs.asdict(config)
    if config.retry_backoff is not None:
        fields["retry_backoff"] = BackoffInfo(**msgspec.structs.asdict(config.retry_backoff))
    return ConfigInfo(**fields, durable=config.durable)


class QueueCounts(msgspec.Struct, frozen=True):
    """How many jobs stand where; ``dead`` lie dead now, ``dead_lettered`` were dead-lettered so far. ``suspects`` are
    those of the ready ones that wait apart, because their worker was lost.
    """

    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    parked: int = 0
    dead: int = 0
    dead_lettered: int = 0
    oldest_ready_ms: int | None = None
    ack_holes: int = 0
    suspects: int = 0


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic's state and config; ``queue`` is None on a log."""

    topic: str
    type: str
    config: ConfigInfo
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
    """A topic after a put, with every field of its config."""

    topic: str
    type: str
    created: bool
    config: ConfigInfo


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


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a listing of the broker; ``next_cursor`` is None on the last one."""

    items: list[T]
    next_cursor: str | None = None


class Health(msgspec.Struct, frozen=True):
    """The process answers. ``started_ms`` is when it was started by its own clock, and tells two processes apart."""

    status: str
    version: str = ""
    uptime_ms: int = 0
    started_ms: int = 0


class Ready(msgspec.Struct, frozen=True):
    """Requests are served."""

    status: str
    wal_replay_complete: bool = True
    topics: int = 0
