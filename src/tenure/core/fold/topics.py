"""Fold topics: put and deleted, and their records deleted or evicted."""

from __future__ import annotations

from tenure.core.events import Deleted, Evicted, TopicDeleted, TopicPut
from tenure.core.fold.removal import remove
from tenure.core.state.queue import IDLE, Queue
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["deleted", "evicted", "topic_deleted", "topic_put"]


def topic_put(state: State, event: TopicPut, location: int) -> None:
    if event.created:
        topic = Topic(event.topic, event.name, event.config)
        topic.created_ms = event.at_ms
        topic.base = location >> 32
        topic.implicit = event.implicit
        if event.config.type == "queue":
            topic.queue = IDLE
        state.add_topic(topic)
        state.retired.discard(event.name)
        return
    known = state.by_id.get(event.topic)
    if known is not None:
        state.pass_time(known, event.at_ms)
        known.config, known.implicit = event.config, False
        if event.config.type == "queue" and known.queue is None:
            _become_queue(state, known)


def _become_queue(state: State, topic: Topic) -> None:
    """Turn a log into a queue: every live record is a job that was never delivered."""
    topic.queue = Queue() if topic.head_seq else IDLE
    state.jobs += topic.count


def topic_deleted(state: State, event: TopicDeleted, location: int) -> None:
    if event.retired is not None:
        state.retired.add(event.retired)
    state.orphans.pop(event.topic, None)
    topic = state.by_id.get(event.topic)
    if topic is not None:
        state.remove_topic(topic)


def deleted(state: State, event: Deleted, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is not None:
        state.pass_time(topic, event.at_ms)
        remove(state, topic, event.runs, records=event.count, size=event.bytes)


def evicted(state: State, event: Evicted, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None:
        return
    state.pass_time(topic, event.at_ms)
    remove(state, topic, event.runs, records=event.count, size=event.bytes)
    above = event.runs[-2] + event.runs[-1]
    topic.evict_from = max(topic.evict_from, above)
    if event.reason == "cap":
        topic.cap_floor = max(topic.cap_floor, above)
    else:
        topic.ttl_floor = max(topic.ttl_floor, above)
