"""Fold an append: frame index, counts, tags, delays, unique and idempotency keys, client marks."""

from __future__ import annotations

from tenure.core.events import Appended, AppendExtra
from tenure.core.records import ends_of, slice_blob, unpack
from tenure.core.state.client_marks import MARK_IDLE_MS, ClientMarks
from tenure.core.state.frame_index import WideIndex, add_frame
from tenure.core.state.idempotency import KeyWindow
from tenure.core.state.queue import IDLE, Queue
from tenure.core.state.state import State
from tenure.core.state.tags import TagIndex
from tenure.core.state.topic import Topic

__all__ = ["appended"]


def appended(state: State, event: Appended, location: int) -> None:
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
        for seq, losses in zip(extra.losses[::2], extra.losses[1::2], strict=True):
            topic.queue.note_losses(seq, losses, now_ms=event.at_ms)
    if extra.key is not None:
        _remember_key(state, topic, event, extra.key)
    if extra.client is not None:
        _advance_mark(topic, event, extra.client, displaced=extra.displaced)


def _remember_key(state: State, topic: Topic, event: Appended, key: tuple[bytes, int, int]) -> None:
    if topic.keys is None:
        topic.keys = KeyWindow()
        state.keyed[topic] = None
    before = len(topic.keys)
    topic.keys.expire(event.at_ms)
    digest, payload, expires_ms = key
    topic.keys.put(digest, first_seq=event.first_seq, count=event.count, payload_digest=payload, expires_ms=expires_ms)
    state.idempotency_keys += len(topic.keys) - before


def _advance_mark(topic: Topic, event: Appended, client: tuple[str, int], *, displaced: str | None) -> None:
    if topic.marks is None:
        topic.marks = ClientMarks()
    topic.marks.expire(event.at_ms - MARK_IDLE_MS)
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
        queue.delays.add_wall(seq, due_ms)
    if extra.wall_delays:
        state.wall_queues.add(topic.id)
        queue.plan(state.wall_offset_ms)
