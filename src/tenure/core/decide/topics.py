"""Decide the commands on topics: put, patch, get, list, delete."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from tenure.contract.bounds import UNBOUND, Bounds
from tenure.contract.commands import DeleteTopic, GetTopic, ListTopics, PatchTopic, PutTopic
from tenure.contract.config import TopicConfig
from tenure.contract.names import check_topic_name
from tenure.contract.replies import Page, QueueCounts, TopicInfo
from tenure.contract.replies.topics import config_info
from tenure.contract.values import check_flag
from tenure.core.decide.decision import Behind, Decided, Decision, Payloads, Steps
from tenure.core.decide.evict import evict_over_cap, evict_over_ttl
from tenure.core.decide.limits import check_new_topic, read_config, read_patch
from tenure.core.events import Event, RouterDeleted, TopicDeleted, TopicPut
from tenure.core.level import Level
from tenure.core.paging import after_name, check_prefix, clamp_limit, cursor_of
from tenure.core.priority import effective_priority
from tenure.core.ready_jobs import ack_holes, next_ready, ready_count
from tenure.core.state.frame_index import find
from tenure.core.state.queue import Queue
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, Denied, Overloaded

__all__ = ["delete_topic", "get_topic", "list_topics", "patch_topic", "put_topic", "queue_info"]


def put_topic(
    state: State, command: PutTopic, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decided[tuple[TopicInfo, bool]]:
    """Create a topic or replace its config; the second part of the reply is whether it was created.

    The type never changes, but for a log that no caller asked for: an append, a router or a dead letter made it, so a
    first put may say that it is a queue. Its live records become jobs then.
    """
    name = check_topic_name(command.topic)
    topic = state.topics.get(name)
    kept = None if topic is None or topic.implicit else topic.config
    config = read_config(state, command.config, topic=name, existing=kept)
    if topic is None:
        check_new_topic(state, name, share=bounds.share)
    return _put(state, name, topic, config, now_ms, payloads)


def _put(
    state: State, name: str, topic: Topic | None, config: TopicConfig, now_ms: int, payloads: Payloads
) -> Steps[tuple[tuple[TopicInfo, bool], int]]:
    yield from _configure(state, name, topic, config, now_ms, payloads)
    return (_describe(state, state.topics[name], now_ms), topic is None), Level.SYNCED


def patch_topic(state: State, command: PatchTopic, now_ms: int, payloads: Payloads) -> Decided[TopicInfo]:
    """Change the named fields of a topic's config and leave the others.

    Raises NotFound where there is no such topic, Conflict for another type.
    """
    topic = state.topic(command.topic)
    config = read_patch(state, command.config, topic=topic.name, existing=topic.config)
    return _patch(state, topic, config, now_ms, payloads)


def _patch(
    state: State, topic: Topic, config: TopicConfig, now_ms: int, payloads: Payloads
) -> Steps[tuple[TopicInfo, int]]:
    yield from _configure(state, topic.name, topic, config, now_ms, payloads)
    return _describe(state, topic, now_ms), Level.SYNCED


def _configure(
    state: State, name: str, topic: Topic | None, config: TopicConfig, now_ms: int, payloads: Payloads
) -> Steps[None]:
    """Log the config of a topic, a new one where ``topic`` is None, and begin to evict what it does not keep.

    What is more than one step is evicted later.
    """
    topic_id = state.next_topic_id if topic is None else topic.id
    yield [TopicPut(now_ms, topic_id, name, config, created=topic is None)]
    fresh = state.topics[name]
    yield from evict_over_ttl(state, fresh, now_ms, payloads)
    yield from evict_over_cap(state, fresh, now_ms, payloads)


def get_topic(state: State, command: GetTopic, now_ms: int, payloads: Payloads) -> Steps[tuple[TopicInfo, int]]:
    """Describe a topic's state. ``touch`` counts as a read for its automatic priority."""
    topic = state.topic(command.topic)
    check_flag(command.touch, "touch")
    yield from evict_over_ttl(state, topic, now_ms, payloads)
    if command.touch:
        topic.last_read_ms = now_ms + state.wall_offset_ms
    return _describe(state, topic, now_ms), Level.NOW


def _describe(state: State, topic: Topic, now_ms: int) -> TopicInfo:
    """Describe a topic. One that is behind is described as it is: its expired leases still count as held."""
    wall_ms = now_ms + state.wall_offset_ms
    return TopicInfo(
        topic=topic.name,
        type=topic.config.type,
        head_seq=topic.head_seq,
        durable_seq=topic.durable_seq,
        earliest_seq=topic.floor,
        next_seq=topic.head_seq + 1,
        count=topic.count,
        bytes=topic.bytes,
        config=config_info(topic.config),
        effective_priority=effective_priority(topic, wall_ms),
        last_write_ts=topic.last_write_ms,
        last_read_ts=topic.last_read_ms,
        queue=queue_info(state, topic, topic.queue, now_ms) if topic.queue is not None else None,
    )


def queue_info(state: State, topic: Topic, queue: Queue, now_ms: int) -> QueueCounts:
    """Return the counts of a queue, and how long its next job has waited."""
    return QueueCounts(
        ready=ready_count(topic, queue),
        in_flight=len(queue.in_flight),
        delayed=len(queue.delayed),
        parked=len(queue.parked),
        dead=_dead_count(state, topic.config, queue),
        dead_lettered=queue.dead_lettered,
        oldest_ready_ms=_oldest_ready_ms(topic, queue, now_ms),
        ack_holes=ack_holes(topic, queue),
        suspects=len(queue.suspects.ready),
    )


def _dead_count(state: State, config: TopicConfig, queue: Queue) -> int:
    """Return how many jobs are dead now: those parked here, and with ``skip`` the records of the dead-letter topic.

    With ``block_and_dlq`` a letter is the copy of a parked job, and is not counted a second time.
    """
    letters = state.find(config.dead_letter) if config.dlq_strategy == "skip" else None
    return len(queue.parked) + (letters.count if letters is not None else 0)


def _oldest_ready_ms(topic: Topic, queue: Queue, now_ms: int) -> int:
    """Return how long the next job to be handed out has been waiting; 0 when none is.

    The frame index says it, so that a look at many queues reads nothing. A frame that trimming merged has the time of
    its youngest record: the figure is never too high, and too low by no more than the ages that trimming merges differ.
    """
    seq = next_ready(topic, queue)
    if seq is None:
        return 0
    at, index = find(topic.frame_index, seq)
    return max(0, now_ms - topic.frame_index[at].times_ms[index])


def list_topics(state: State, command: ListTopics, now_ms: int, payloads: Payloads) -> Decision[Page[str]]:
    """List the names of topics in order. The cursor is opaque; a corrupt one is Invalid."""
    limit, prefix = clamp_limit(command.limit, state.settings), check_prefix(command.prefix)
    names = state.sorted_names()
    start = max(bisect_right(names, after_name(command.cursor)), bisect_left(names, prefix))
    found: list[str] = []
    for name in names[start : start + limit + 1]:
        if not name.startswith(prefix):
            break
        found.append(name)
    more = len(found) > limit
    return None, Page(found[:limit], cursor_of(found[limit - 1]) if more else None), Level.NOW


def delete_topic(
    state: State, command: DeleteTopic, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decided[tuple[bool, list[str]]]:
    """Delete a topic, its records and the routers at either end; the reply says whether it was there and which
    routers went. Raises Denied where a router would go that the caller does not reach, and Conflict by ``if_empty``.
    """
    check_topic_name(command.topic)
    check_flag(command.if_empty, "if_empty")
    topic = state.topics.get(command.topic)
    if topic is None:
        return None, (False, []), Level.SYNCED  # another call may have deleted it just now
    if command.if_empty and topic.config.ttl_ms:
        return _delete_once_empty(state, topic, command, now_ms, payloads, bounds)
    return _deletion(state, topic, command, now_ms, bounds)


def _delete_once_empty(
    state: State, topic: Topic, command: DeleteTopic, now_ms: int, payloads: Payloads, bounds: Bounds
) -> Steps[tuple[tuple[bool, list[str]], int] | Behind]:
    if not (yield from evict_over_ttl(state, topic, now_ms, payloads)):
        return Behind(topic)
    events, reply, level = _deletion(state, topic, command, now_ms, bounds)
    yield events
    return reply, level


def _deletion(
    state: State, topic: Topic, command: DeleteTopic, now_ms: int, bounds: Bounds
) -> tuple[list[Event], tuple[bool, list[str]], int]:
    name, reaches = topic.name, bounds.reaches
    if command.if_empty and topic.count:
        raise Conflict(f"{name!r} holds {topic.count} records", code="topic_not_empty", count=topic.count)
    attached = [router for router in state.routers.values() if name in (router.source, router.dest)]
    if reaches is not None and not all(router.within(reaches) for router in attached):
        raise Denied(
            "routers that the caller does not reach are attached to this topic and would go with it: "
            "have them deleted first, or use a key that reaches them"
        )
    retired = None if topic.config.auto_create else name
    if retired is not None:
        _check_retired(state)
    removed = sorted(router.name for router in attached)
    events: list[Event] = [RouterDeleted(now_ms, router) for router in removed]
    return [*events, TopicDeleted(now_ms, topic.id, retired)], (True, removed), Level.SYNCED


def _check_retired(state: State) -> None:
    limit = state.settings.retired_names_max
    if limit and len(state.retired) >= limit:
        raise Overloaded(
            f"{limit} names of deleted topics are kept from being made again: set auto_create true, then delete it",
            limit="retired_names_max",
            max=limit,
        )
