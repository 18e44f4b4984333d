"""``fold(state, event, location)``: the one place where state changes.

The same function runs when an event has just been decided and when the log is read back, so what was answered and
what a restart rebuilds cannot differ. An event about a topic whose base has not come yet in a replay builds its index
and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.core.events import (
    Acked,
    Appended,
    AppendExtra,
    Carried,
    Claimed,
    ClockSet,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Opened,
    Redriven,
    Released,
    RouterDeleted,
    RouterMoved,
    RouterPut,
    StateCarried,
    TopicCarried,
    TopicDeleted,
    TopicPut,
)
from tenure.core.fold import leases as lease_folds
from tenure.core.fold.removal import remove
from tenure.core.records import ends_of, slice_blob, unpack
from tenure.core.state.client_marks import ClientMarks
from tenure.core.state.frame_index import WideIndex, add_frame, replace_frames
from tenure.core.state.idempotency import KeyWindow
from tenure.core.state.queue import IDLE, Queue
from tenure.core.state.router import Router
from tenure.core.state.snapshot import load_state, load_topic
from tenure.core.state.state import State
from tenure.core.state.tags import TagIndex
from tenure.core.state.topic import Topic

__all__ = ["FOLDS", "MARKS_IDLE_MS", "fold"]

MARKS_IDLE_MS = 7 * 24 * 3600 * 1000
"""A client mark nobody used for this long is forgotten."""


def fold(state: State, event: Event, location: int = 0) -> None:
    """Apply one event. ``location`` is where its frame lies."""
    if event.at_ms > state.log_ms:
        state.log_ms = event.at_ms
    FOLDS[type(event)](state, event, location)


# Time


def _opened(state: State, event: Opened, location: int) -> None:
    _set_offset(state, event.at_ms, event.wall_offset_ms)
    state.epoch = event.epoch
    state.leases_given = 0
    state.boot_id, state.boot_ms, state.opened_ms = event.boot_id, event.boot_ms, event.at_ms


def _clock_set(state: State, event: ClockSet, location: int) -> None:
    _set_offset(state, event.at_ms, event.wall_offset_ms)


def _set_offset(state: State, at_ms: int, wall_offset_ms: int) -> None:
    waiting = [state.by_id[topic_id] for topic_id in sorted(state.wall_queues)]
    for topic in waiting:
        state.pass_time(topic, at_ms)
    state.wall_offset_ms = wall_offset_ms
    for topic in waiting:
        assert topic.queue is not None
        topic.queue.plan(wall_offset_ms)


# Topics


def _topic_put(state: State, event: TopicPut, location: int) -> None:
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


def _topic_deleted(state: State, event: TopicDeleted, location: int) -> None:
    if event.retired is not None:
        state.retired.add(event.retired)
    state.orphans.pop(event.topic, None)
    topic = state.by_id.get(event.topic)
    if topic is not None:
        state.remove_topic(topic)


def _appended(state: State, event: Appended, location: int) -> None:
    topic = state.by_id.get(event.topic)
    size = len(event.blobs)
    entries = topic.frame_index if topic is not None else state.orphan(event.topic).frame_index
    entry = entries[-1] if entries else None
    if entry.__class__ is WideIndex and entry.segment == location >> 32:  # as `add_frame` does; most appends end here
        entry.firsts.append(event.first_seq)
        entry.offsets.append(location & 0xFFFFFFFF)
        entry.sizes.append(size)
        entry.times_ms.append(event.at_ms)
    elif add_frame(entries, event.first_seq, location, size, event.at_ms):
        state.note_holder(location >> 32, event.topic)
    if topic is None:
        return
    if topic.queue is not None:
        state.jobs += event.count
        if topic.queue is IDLE:
            topic.queue = Queue()
    topic.head_seq = event.first_seq + event.count - 1
    topic.count += event.count
    topic.bytes += size
    topic.last_write_ms = event.ts_ms
    state.live_bytes += size
    if event.extra is not None:
        _append_extra(state, topic, event, event.extra)


def _append_extra(state: State, topic: Topic, event: Appended, extra: AppendExtra) -> None:
    if extra.tagged:
        _index_tags(topic, event)
    if topic.queue is not None:
        _delay(state, topic, topic.queue, extra)
        for seq, key in extra.uniques:
            topic.queue.uniques[key] = seq
            topic.queue.uniques_by_seq[seq] = key
        for seq, deliveries in zip(extra.deliveries[::2], extra.deliveries[1::2], strict=True):
            topic.queue.deliveries[seq] = deliveries
            topic.queue.redelivered_max = seq
    if extra.key is not None:
        _remember_key(state, topic, event, extra.key)
    if extra.client is not None:
        _advance_mark(topic, event, extra.client, displaced=extra.displaced)


def _remember_key(state: State, topic: Topic, event: Appended, key: tuple[bytes, int, int]) -> None:
    if topic.keys is None:
        topic.keys = KeyWindow()
    before = len(topic.keys)
    topic.keys.expire(event.at_ms)
    digest, payload, expires_ms = key
    topic.keys.put(digest, first_seq=event.first_seq, count=event.count, payload_digest=payload, expires_ms=expires_ms)
    state.idempotency_keys += len(topic.keys) - before


def _advance_mark(topic: Topic, event: Appended, client: tuple[str, int], *, displaced: str | None) -> None:
    if topic.marks is None:
        topic.marks = ClientMarks()
    topic.marks.expire(event.at_ms - MARKS_IDLE_MS)
    if displaced is not None:
        topic.marks.forget(displaced)
    client_id, client_seq = client
    last_seq = event.first_seq + event.count - 1
    topic.marks.advance(client_id, client_seq, first_seq=event.first_seq, last_seq=last_seq, at_ms=event.at_ms)


def _index_tags(topic: Topic, event: Appended) -> None:
    if topic.tags is None:
        topic.tags = TagIndex(topic.is_dead)
    ends, blobs = ends_of(event.ends, len(event.blobs)), memoryview(event.blobs)
    for i in range(event.count):
        _, extras = unpack(slice_blob(ends, blobs, i), event.plain)
        if extras.tag is not None:
            topic.tags.add(extras.tag, event.first_seq + i)


def _delay(state: State, topic: Topic, queue: Queue, extra: AppendExtra) -> None:
    for seq, due_ms in zip(extra.delays[::2], extra.delays[1::2], strict=True):
        queue.make_ready_at(seq, due_ms, now_ms=0)
    for seq, due_ms in zip(extra.wall_delays[::2], extra.wall_delays[1::2], strict=True):
        queue.make_ready_at_wall(seq, due_ms)
    if extra.wall_delays:
        state.wall_queues.add(topic.id)
        queue.plan(state.wall_offset_ms)


def _deleted(state: State, event: Deleted, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is not None:
        state.pass_time(topic, event.at_ms)
        remove(state, topic, event.runs, records=event.count, size=event.bytes)


def _evicted(state: State, event: Evicted, location: int) -> None:
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


# Routers


def _router_put(state: State, event: RouterPut, location: int) -> None:
    known = state.routers.get(event.name)
    state.routers[event.name] = Router(
        name=event.name,
        source=event.source,
        dest=event.dest,
        preserve_node=event.preserve_node,
        preserve_tag=event.preserve_tag,
        create_dest=event.create_dest,
        filter=event.filter,
        allow_cycle=event.allow_cycle,
        cursor=event.cursor,
        forwarded=known.forwarded if known else 0,
        missed=known.missed if known else 0,
    )
    state.index_routers()


def _router_deleted(state: State, event: RouterDeleted, location: int) -> None:
    if state.routers.pop(event.name, None) is not None:
        state.index_routers()


def _router_moved(state: State, event: RouterMoved, location: int) -> None:
    router = state.routers.get(event.name)
    if router is not None:
        router.cursor = event.cursor
        router.forwarded += event.forwarded
        router.missed += event.missed
    dest = state.by_id.get(event.dest) if event.missed else None
    if dest is not None:  # one seq is burnt there, so that its readers meet the loss as a gap
        dest.head_seq += 1
        dest.trim_seq, dest.trim_missed = dest.head_seq, event.missed
        dest.bury(dest.head_seq, dest.head_seq + 1)


# Rewriting


def _carried(state: State, event: Carried, location: int) -> None:
    topic = state.by_id.get(event.topic) or state.orphan(event.topic)
    frame = (event.lo, location, event.size_bytes, event.ats_ms[-1])
    replace_frames(topic.frame_index, event.lo, event.hi, frame)
    state.note_holder(location >> 32, event.topic)


def _topic_carried(state: State, event: TopicCarried, location: int) -> None:
    """Where the topic is known this only moves its base; in a replay it may be the first that is heard of it."""
    topic = state.by_id.get(event.topic)
    if topic is None:
        topic = load_topic(event.snapshot)
        orphan = state.orphans.pop(event.topic, None)
        if orphan is not None:
            topic.frame_index = orphan.frame_index
            topic.drop_dead_segments()
        state.add_topic(topic)
    topic.base = location >> 32
    state.note_holder(topic.base, topic.id)


def _state_carried(state: State, event: StateCarried, location: int) -> None:
    load_state(state, event.snapshot)


FOLDS: dict[type[Event], Callable[[State, Any, int], None]] = {
    Opened: _opened,
    ClockSet: _clock_set,
    TopicPut: _topic_put,
    TopicDeleted: _topic_deleted,
    Appended: _appended,
    Deleted: _deleted,
    Evicted: _evicted,
    Claimed: lease_folds.claimed,
    Acked: lease_folds.acked,
    Released: lease_folds.released,
    Extended: lease_folds.extended,
    DeadLettered: lease_folds.dead_lettered,
    Redriven: lease_folds.redriven,
    RouterPut: _router_put,
    RouterDeleted: _router_deleted,
    RouterMoved: _router_moved,
    Carried: _carried,
    TopicCarried: _topic_carried,
    StateCarried: _state_carried,
}
