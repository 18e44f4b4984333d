"""Topics as such: put, look, list, delete."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from tenure.broker.answer import Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_cap, evict_over_ttl
from tenure.broker.paging import after_name, check_prefix, clamp_limit, cursor_of
from tenure.broker.room import Share, check_new_topic, check_share, read_config, read_patch
from tenure.contract.replies import Page, TopicInfo
from tenure.core.claim import ack_holes, next_ready, ready_count
from tenure.core.config import TopicConfig, as_dict
from tenure.core.events import Event, RouterDeleted, TopicDeleted, TopicPut
from tenure.core.names import check_topic_name
from tenure.core.piece import find
from tenure.core.priority import effective_priority
from tenure.core.queue import Queue
from tenure.core.topic import Topic
from tenure.core.values import check_flag, check_reaches
from tenure.errors import Conflict, Corrupt, Denied, Overloaded

__all__ = ["delete_topic", "list_topics", "meters", "patch_topic", "put_topic", "queue_info", "topic_info"]


def put_topic(
    engine: Engine, name: str, config: Mapping[str, Any], *, share: Share | None = None
) -> Answer[tuple[TopicInfo, bool]]:
    """Create a topic or replace its config; the second part of the reply says which.

    The type never changes, but for a log that no caller asked for: an append, a router or a dead letter made it, so a
    first put may say that it is a queue. Its live records become jobs then.
    """
    check_topic_name(name)
    check_share(share)
    topic = engine.state.topics.get(name)
    kept = None if topic is None or topic.implicit else topic.config
    parsed = read_config(engine, config, topic=name, existing=kept)
    if topic is None:
        check_new_topic(engine, name, share=share)
    info, batch = _configure(engine, name, None if topic is None else topic.id, parsed)
    return Answer((info, topic is None), batch, Level.SYNCED, engine.gate)


def patch_topic(engine: Engine, name: str, config: Mapping[str, Any]) -> Answer[TopicInfo]:
    """Change the named fields of a topic's config and leave the others.

    Raises NotFound where there is no such topic, Conflict for another type.
    """
    topic = engine.state.topic(name)
    parsed = read_patch(engine, config, topic=name, existing=topic.config)
    info, batch = _configure(engine, name, topic.id, parsed)
    return Answer(info, batch, Level.SYNCED, engine.gate)


def _configure(engine: Engine, name: str, topic_id: int | None, config: TopicConfig) -> tuple[TopicInfo, int]:
    """Log the config of a topic, a new one where its id is None; return the topic and the batch."""
    now, number = engine.now(), engine.state.next_topic_id if topic_id is None else topic_id
    batch = engine.commit(TopicPut(now, number, name, config, created=topic_id is None), number)
    fresh = engine.state.topics[name]
    evict_over_ttl(engine, fresh, now)
    evict_over_cap(engine, fresh, now)
    engine.touched.add(fresh)
    return topic_info(engine, name, touch=False), batch


def topic_info(engine: Engine, name: str, *, touch: bool = True) -> TopicInfo:
    """A topic's state. ``touch`` counts as a read for its automatic priority."""
    topic = engine.state.topic(name)
    check_flag(touch, "touch")
    now = engine.now()
    engine.pass_time(topic, now)
    evict_over_ttl(engine, topic, now)
    wall_ms = now + engine.state.wall_offset_ms
    if touch:
        topic.last_read_ms = wall_ms
    return TopicInfo(
        topic=name,
        type=topic.config.type,
        head_seq=topic.head_seq,
        durable_seq=topic.durable_seq,
        earliest_seq=topic.floor,
        next_seq=topic.head_seq + 1,
        count=topic.count,
        bytes=topic.bytes,
        config=as_dict(topic.config),
        effective_priority=effective_priority(topic, wall_ms),
        last_write_ts=topic.last_write_ms,
        last_read_ts=topic.last_read_ms,
        queue=queue_info(engine, topic, topic.queue, wall_ms) if topic.queue is not None else None,
    )


def meters(engine: Engine, name: str) -> dict[str, Any]:
    """How long a queue's jobs wait and take, and how often they are handed out, since the broker was opened."""
    topic, queue = engine.state.queue(name)
    engine.pass_time(topic, engine.now())
    return engine.meters.report(topic, queue, wall_offset_ms=engine.state.wall_offset_ms)


def queue_info(engine: Engine, topic: Topic, queue: Queue, wall_ms: int) -> dict[str, int]:
    """The counts of a queue, and how long its next job has waited."""
    return {
        "ready": ready_count(topic, queue),
        "in_flight": len(queue.in_flight),
        "delayed": len(queue.delayed),
        "parked": len(queue.parked),
        "dead": _dead_count(engine, topic.config, queue),
        "dead_lettered": queue.dead_lettered,
        "oldest_ready_ms": _oldest_ready_ms(engine, topic, queue, wall_ms),
        "ack_holes": ack_holes(topic, queue),
    }


def _dead_count(engine: Engine, config: TopicConfig, queue: Queue) -> int:
    """How many jobs lie dead now: those parked here, and with ``skip`` the records of the dead-letter topic.

    With ``block_and_dlq`` a letter is the copy of a parked job, and is not counted a second time.
    """
    letters = engine.state.find(config.dead_letter) if config.dlq_strategy == "skip" else None
    return len(queue.parked) + (letters.count if letters is not None else 0)


def _oldest_ready_ms(engine: Engine, topic: Topic, queue: Queue, wall_ms: int) -> int:
    """How long the next job to be handed out has been waiting; 0 when none is."""
    seq = next_ready(topic, queue)
    if seq is None:
        return 0
    try:
        ts = engine.reader.records(topic, [seq, 1])[0].ts
    except Corrupt:  # the index knows when its frame was appended
        at, index = find(topic.pieces, seq)
        ts = topic.pieces[at].times[index] + engine.state.wall_offset_ms
    return max(0, wall_ms - ts)


def list_topics(engine: Engine, *, prefix: str = "", limit: int = 100, cursor: str | None = None) -> Page:
    """Names of topics in order. The cursor is opaque; a corrupt one is Invalid."""
    limit, prefix, after = clamp_limit(limit, engine.settings), check_prefix(prefix), after_name(cursor)
    names = engine.sorted_names()
    start = max(bisect_right(names, after), bisect_left(names, prefix))
    found: list[str] = []
    for name in names[start : start + limit + 1]:
        if not name.startswith(prefix):
            break
        found.append(name)
    more = len(found) > limit
    return Page(found[:limit], cursor_of(found[limit - 1]) if more else None)


def delete_topic(
    engine: Engine, name: str, *, if_empty: bool = False, reaches: Callable[[str], bool] | None = None
) -> Answer[tuple[bool, list[str]]]:
    """Delete a topic, its records and the routers at either end; the reply says whether it was there and which
    routers went. Raises Denied where a router would go that the caller does not reach, and Conflict by ``if_empty``.
    """
    check_topic_name(name)
    check_flag(if_empty, "if_empty")
    check_reaches(reaches)
    topic = engine.state.topics.get(name)
    if topic is None:
        return Answer((False, []), 0, Level.NOW, engine.gate)
    now = engine.now()
    if if_empty:
        evict_over_ttl(engine, topic, now)
        if topic.count:
            raise Conflict(f"{name!r} holds {topic.count} records", code="topic_not_empty", count=topic.count)
    attached = [router for router in engine.state.routers.values() if name in (router.source, router.dest)]
    if reaches is not None and not all(router.within(reaches) for router in attached):
        raise Denied(
            "routers that the caller does not reach are attached to this topic and would go with it: "
            "have them deleted first, or use a key that reaches them"
        )
    retired = None if topic.config.auto_create else name
    if retired is not None:
        _check_retired(engine)
    removed = sorted(router.name for router in attached)
    events: list[tuple[Event, int]] = [(RouterDeleted(now, router), 0) for router in removed]
    batch = engine.commit_all(*events, (TopicDeleted(now, topic.id, retired), topic.id), urgent=True)
    engine.touched.add(topic)
    return Answer((True, removed), batch, Level.SYNCED, engine.gate)


def _check_retired(engine: Engine) -> None:
    limit = engine.settings.retired_names_max
    if limit and len(engine.state.retired) >= limit:
        raise Overloaded(
            f"{limit} names of deleted topics are kept from being made again: set auto_create true, then delete it",
            limit="retired_names_max",
            max=limit,
        )
