"""Topics as such: put, look, list, delete."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

from tenure.broker.answer import Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_cap, evict_over_ttl
from tenure.broker.paging import after_name, check_prefix, clamp_limit, cursor_of
from tenure.broker.replies import Page, TopicInfo
from tenure.broker.room import check_new_topic
from tenure.core.claim import ack_holes, next_ready, ready_count
from tenure.core.config import as_dict, parse_config
from tenure.core.events import Event, RouterDeleted, TopicDeleted, TopicPut
from tenure.core.names import check_topic_name
from tenure.core.piece import find
from tenure.core.queue import Queue
from tenure.core.topic import Topic
from tenure.core.values import check_flag
from tenure.errors import Conflict, Corrupt

__all__ = ["delete_topic", "list_topics", "meters", "put_topic", "queue_info", "topic_info"]

_MINUTE_MS = 60_000


def put_topic(engine: Engine, name: str, config: Mapping[str, Any]) -> Answer[tuple[TopicInfo, bool]]:
    """Create a topic or replace its config; the second part of the reply says which. The type never changes."""
    check_topic_name(name)
    topic = engine.state.topics.get(name)
    parsed = parse_config(config, existing=topic.config if topic is not None else None, topic=name)
    now = engine.now()
    if topic is None:
        check_new_topic(engine, name)
        topic_id = engine.state.next_topic_id
    else:
        topic_id = topic.id
    batch = engine.commit(TopicPut(now, topic_id, name, parsed, created=topic is None), topic_id)
    fresh = engine.state.topics[name]
    evict_over_ttl(engine, fresh, now)
    evict_over_cap(engine, fresh, now)
    engine.touched.add(fresh)
    return Answer((topic_info(engine, name, touch=False), topic is None), batch, Level.SYNCED, engine.gate)


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
        effective_priority=_priority(topic, wall_ms),
        last_write_ts=topic.last_write_ms,
        last_read_ts=topic.last_read_ms,
        queue=queue_info(engine, topic, topic.queue, wall_ms) if topic.queue is not None else None,
    )


def _priority(topic: Topic, wall_ms: int) -> int:
    """What was set; else, where it may be derived, 100 for a topic read this minute, one less for each minute since."""
    if topic.config.priority is not None:
        return topic.config.priority
    if not topic.config.auto_priority or not topic.last_read_ms:
        return 0
    return max(0, 100 - (wall_ms - topic.last_read_ms) // _MINUTE_MS)


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
        "dead_lettered": queue.dead_lettered,
        "oldest_ready_ms": _oldest_ready_ms(engine, topic, queue, wall_ms),
        "ack_holes": ack_holes(topic, queue),
    }


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


def delete_topic(engine: Engine, name: str, *, if_empty: bool = False) -> Answer[tuple[bool, list[str]]]:
    """Delete a topic, its records and the routers at either end; the reply says whether it was there and which
    routers went.
    """
    check_topic_name(name)
    check_flag(if_empty, "if_empty")
    topic = engine.state.topics.get(name)
    if topic is None:
        return Answer((False, []), 0, Level.NOW, engine.gate)
    now = engine.now()
    if if_empty:
        evict_over_ttl(engine, topic, now)
        if topic.count:
            raise Conflict(f"{name!r} holds {topic.count} records", code="topic_not_empty", count=topic.count)
    removed = sorted(r.name for r in engine.state.routers.values() if name in (r.source, r.dest))
    events: list[tuple[Event, int]] = [(RouterDeleted(now, router), 0) for router in removed]
    batch = engine.commit_all(*events, (TopicDeleted(now, topic.id), topic.id), urgent=True)
    engine.touched.add(topic)
    return Answer((True, removed), batch, Level.SYNCED, engine.gate)
