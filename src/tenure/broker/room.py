"""Is there room: the caps an owner set on a topic, and the limits of the broker as a whole."""

from __future__ import annotations

from tenure.broker.engine import Engine
from tenure.core.config import TopicConfig
from tenure.core.names import check_topic_name
from tenure.core.priority import share_of
from tenure.core.topic import Topic
from tenure.errors import NotFound, Overloaded

__all__ = ["check_broker_room", "check_made_by_use", "check_new_topic", "check_not_retired", "check_topic_room"]


def check_topic_room(topic: Topic | None, config: TopicConfig, *, records: int, size: int) -> None:
    """Records fit under the caps of a topic that rejects when full; a new topic is given as None."""
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


def check_broker_room(engine: Engine, config: TopicConfig, *, size: int) -> None:
    """The disk keeps up, and the broker as a whole is not full, for a topic of this config.

    A priority below 0 leaves a part of both to the others, so those of low priority are turned away first.
    """
    settings, priority = engine.settings, config.priority
    if engine.backlog_bytes > share_of(settings.pending_bytes_max, priority):
        raise Overloaded("the disk is behind: too many bytes wait for a sync; send the same request later")
    total = settings.total_bytes_max
    if total and engine.state.live_bytes + size > share_of(total, priority):
        raise Overloaded("the broker is full: ack or delete records first", limit="total_bytes_max", max=total)


def check_new_topic(engine: Engine, name: str) -> None:
    """A topic of this name may be created: the name is legal and there is room for one more."""
    check_topic_name(name)
    limit = engine.settings.topics_max
    if limit and len(engine.state.topics) >= limit:
        raise Overloaded(
            f"there are {limit} topics, which is the limit: delete some first", limit="topics_max", max=limit
        )


def check_made_by_use(engine: Engine, name: str) -> None:
    """An append or a router may create a topic of this name. Raises NotFound for a name that only a put brings back."""
    check_not_retired(engine, name)
    check_new_topic(engine, name)


def check_not_retired(engine: Engine, name: str) -> None:
    """No topic of this name was deleted whose ``auto_create`` was false. Raises NotFound."""
    if name in engine.state.retired:
        raise NotFound(
            f"topic {name!r} was deleted and its auto_create was false: put it to have it again",
            code="topic_not_found",
            topic=name,
        )
