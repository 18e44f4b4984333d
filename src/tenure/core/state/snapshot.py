"""Snapshots: state written out and read back, for the rewritten base of a topic and for checkpoints.

The form is canonical: two states that behave alike write the same bytes, whichever events led to them. So a test that
replays a log in another way compares two byte strings and needs no second notion of equality.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sized

import msgspec
from pyroaring import BitMap64

from tenure.contract.config import TopicConfig, intern_config
from tenure.core.state.client_marks import ClientMarks
from tenure.core.state.deliveries import Delivery, EndedDeliveries
from tenure.core.state.frame_index import SegmentIndex, make_index
from tenure.core.state.idempotency import KeyWindow
from tenure.core.state.lease_snapshot import LeaseRows, dump_leases, load_leases
from tenure.core.state.queue import IDLE, Queue
from tenure.core.state.router import Router
from tenure.core.state.state import State
from tenure.core.state.tags import TagIndex
from tenure.core.state.topic import Topic

__all__ = [
    "count_items",
    "dump_checkpoint",
    "dump_state",
    "dump_topic",
    "load_checkpoint",
    "load_state",
    "load_topic",
]

_LOW = (1 << 64) - 1
_NO_KEYS = KeyWindow().dump(now_ms=0)
_INDEX_CODES = ("Q", "I", "I", "Q")


class QueueSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A queue written out. Pairs of numbers travel as two packed u64 columns."""

    cursor: int
    acked_max: int
    dead_lettered: int
    expired: int
    leases: LeaseRows
    reclaim: bytes
    delays: tuple[bytes, bytes]
    wall_delays: tuple[bytes, bytes]
    deliveries: tuple[bytes, bytes]
    parked: list[tuple[int, str]]
    deliveries_ended: list[tuple[int, list[Delivery]]]
    uniques: list[tuple[int, str]]
    redelivered_max: int
    copies: list[tuple[int, int, int]] = []
    lost: int = 0
    pasts: tuple[bytes, bytes] = (b"", b"")
    begun: list[tuple[int, int, int]] = []


class TopicSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A topic written out, but for its payloads and where they lie."""

    id: int
    name: str
    config: TopicConfig
    created_ms: int
    head_seq: int
    floor: int
    count: int
    live_bytes: int
    cap_floor: int
    ttl_floor: int
    trim_seq: int
    trim_missed: int
    last_write_ms: int
    dead: bytes
    queue: QueueSnapshot | None
    keys: bytes | None
    marks: bytes | None
    tags: bytes | None
    implicit: bool = False
    recreated: tuple[int, ...] = ()


class StateSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The broker-wide facts written out."""

    epoch: int
    log_ms: int
    boot_id: str
    boot_ms: int
    opened_ms: int
    wall_offset_ms: int
    next_topic_id: int
    leases_given: int
    routers: list[Router]
    retired: list[str] = []


class SegmentIndexSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The frame index of one segment, column by column."""

    segment: int
    firsts: bytes
    offsets: bytes
    sizes: bytes
    times_ms: bytes


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The whole state, payloads aside."""

    state: StateSnapshot
    topics: list[tuple[TopicSnapshot, int, list[SegmentIndexSnapshot]]]


_encode = msgspec.msgpack.Encoder().encode
_decode_topic = msgspec.msgpack.Decoder(TopicSnapshot).decode
_decode_state = msgspec.msgpack.Decoder(StateSnapshot).decode
_decode_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode


def dump_topic(topic: Topic, *, now_ms: int) -> bytes:
    """Return everything that is folded of a topic except its frame index."""
    return _encode(_topic_snapshot(topic, now_ms))


def count_items(topic: Topic) -> int:
    """Return how many things `dump_topic` has to go through, at no cost: it takes up to some microseconds for each."""
    parts: list[Sized] = [part for part in (topic.keys, topic.marks, topic.tags) if part is not None]
    if (queue := topic.queue) is not None:
        parts += (queue.in_flight, queue.delayed, queue.deliveries, queue.parked, queue.uniques, queue.copies)
        parts.append(queue.suspects.pasts)
    return sum(len(part) for part in parts)


def load_topic(data: bytes | msgspec.Raw) -> Topic:
    """Return the topic that ``dump_topic`` wrote."""
    return _topic_from(_decode_topic(data))


def dump_state(state: State) -> bytes:
    """Return the broker-wide facts."""
    return _encode(_state_snapshot(state))


def load_state(state: State, data: bytes | msgspec.Raw) -> None:
    """Replace the broker-wide facts of ``state`` by those that ``dump_state`` wrote."""
    _restore_state(state, _decode_state(data))


def dump_checkpoint(state: State) -> bytes:
    """Return the whole state, topics by id."""
    topics = [
        (_topic_snapshot(topic, state.log_ms), topic.base, [_index_snapshot(entry) for entry in topic.frame_index])
        for _, topic in sorted(state.by_id.items())
    ]
    return _encode(Checkpoint(_state_snapshot(state), topics))


def load_checkpoint(data: bytes) -> State:
    """Return the state that ``dump_checkpoint`` wrote."""
    checkpoint = _decode_checkpoint(data)
    state = State()
    for snapshot, base, entries in checkpoint.topics:
        topic = _topic_from(snapshot)
        topic.base = base
        topic.frame_index = [_index_from(entry) for entry in entries]
        state.add_topic(topic)
        for entry in topic.frame_index:
            state.note_holder(entry.segment, topic.id)
    _restore_state(state, checkpoint.state)
    return state


def _state_snapshot(state: State) -> StateSnapshot:
    return StateSnapshot(
        state.epoch,
        state.log_ms,
        state.boot_id,
        state.boot_ms,
        state.opened_ms,
        state.wall_offset_ms,
        state.next_topic_id,
        state.leases_given,
        [state.routers[name] for name in sorted(state.routers)],
        sorted(state.retired),
    )


def _restore_state(state: State, snapshot: StateSnapshot) -> None:
    state.epoch = snapshot.epoch
    state.log_ms = max(state.log_ms, snapshot.log_ms)
    state.boot_id, state.boot_ms, state.opened_ms = snapshot.boot_id, snapshot.boot_ms, snapshot.opened_ms
    state.wall_offset_ms = snapshot.wall_offset_ms
    state.next_topic_id = max(state.next_topic_id, snapshot.next_topic_id)
    state.leases_given = snapshot.leases_given
    state.routers = {router.name: router for router in snapshot.routers}
    state.retired = set(snapshot.retired)
    state.index_routers()
    for topic_id in state.wall_queues:
        queue = state.by_id[topic_id].queue
        assert queue is not None
        queue.plan(state.wall_offset_ms)


def _topic_snapshot(topic: Topic, now_ms: int) -> TopicSnapshot:
    return TopicSnapshot(
        topic.id,
        topic.name,
        topic.config,
        topic.created_ms,
        topic.head_seq,
        topic.floor,
        topic.count,
        topic.bytes,
        topic.cap_floor,
        topic.ttl_floor,
        topic.trim_seq,
        topic.trim_missed,
        topic.last_write_ms,
        topic.dead.serialize() if topic.dead else b"",
        _queue_snapshot(topic.queue) if topic.queue is not None else None,
        _dump_keys(topic.keys, now_ms) if topic.keys else None,
        topic.marks.dump() if topic.marks else None,
        topic.tags.dump() if topic.tags is not None and topic.count else None,
        topic.implicit,
        topic.recreated,
    )


def _dump_keys(keys: KeyWindow, now_ms: int) -> bytes | None:
    """Return the keys that are alive, or None: a window whose keys have all expired is as good as none."""
    dumped = keys.dump(now_ms=now_ms)
    return None if dumped == _NO_KEYS else dumped


def _topic_from(snapshot: TopicSnapshot) -> Topic:
    topic = Topic(snapshot.id, snapshot.name, intern_config(snapshot.config))
    topic.created_ms, topic.implicit = snapshot.created_ms, snapshot.implicit
    topic.recreated = snapshot.recreated
    topic.head_seq, topic.floor = snapshot.head_seq, snapshot.floor
    topic.count, topic.bytes = snapshot.count, snapshot.live_bytes
    topic.cap_floor, topic.ttl_floor = snapshot.cap_floor, snapshot.ttl_floor
    topic.trim_seq, topic.trim_missed = snapshot.trim_seq, snapshot.trim_missed
    topic.evict_from = snapshot.floor
    topic.last_write_ms = snapshot.last_write_ms
    topic.dead = BitMap64.deserialize(snapshot.dead) if snapshot.dead else None
    if snapshot.queue is not None:
        topic.queue = _queue_from(snapshot.queue) if snapshot.head_seq else IDLE
    topic.keys = KeyWindow.load(snapshot.keys) if snapshot.keys is not None else None
    topic.marks = ClientMarks.load(snapshot.marks) if snapshot.marks is not None else None
    topic.tags = TagIndex.load(snapshot.tags, topic.is_dead) if snapshot.tags is not None else None
    return topic


def _queue_snapshot(queue: Queue) -> QueueSnapshot:
    return QueueSnapshot(
        queue.cursor,
        queue.acked_max,
        queue.dead_lettered,
        queue.expired,
        dump_leases(queue),
        queue.reclaim.serialize() if queue.reclaim else b"",
        _columns(queue.delays.living(queue.delays.by_log)),
        _columns(queue.delays.living(queue.delays.by_wall)),
        _columns(sorted(queue.deliveries.items())),
        sorted(queue.parked.items()),
        list(queue.deliveries_ended.items()),
        sorted(queue.uniques_by_seq.items()),
        queue.redelivered_max,
        [(seq, copy >> 64, copy & _LOW) for seq, copy in sorted(queue.copies.items())],
        queue.lost,
        _columns(queue.suspects.pasts.dump()),
        [(seq, at_ms, retry_ms) for seq, (at_ms, retry_ms) in sorted(queue.suspects.begun.items())],
    )


def _queue_from(snapshot: QueueSnapshot) -> Queue:
    queue = Queue()
    queue.acked_max, queue.redelivered_max = snapshot.acked_max, snapshot.redelivered_max
    queue.dead_lettered, queue.expired = snapshot.dead_lettered, snapshot.expired
    load_leases(queue, snapshot.leases)
    queue.cursor = snapshot.cursor
    queue.reclaim = BitMap64.deserialize(snapshot.reclaim) if snapshot.reclaim else queue.reclaim
    queue.delays.restore(_heap_entries(snapshot.delays), _heap_entries(snapshot.wall_delays))
    queue.deliveries = dict(_pairs(snapshot.deliveries))
    queue.parked = dict(snapshot.parked)
    queue.copies = {seq: letters << 64 | letter for seq, letters, letter in snapshot.copies}
    queue.deliveries_ended = EndedDeliveries.restore(snapshot.deliveries_ended)
    queue.uniques_by_seq = dict(snapshot.uniques)
    queue.uniques = {key: seq for seq, key in snapshot.uniques}
    queue.lost = snapshot.lost
    queue.suspects.pasts.restore(_pairs(snapshot.pasts))
    queue.suspects.begun.update((seq, (at_ms, retry_ms)) for seq, at_ms, retry_ms in snapshot.begun)
    queue.suspects.restore(cursor=queue.cursor, held=queue.in_flight, delayed=queue.delayed, parked=queue.parked)
    queue.plan(0)  # wall delays are planned again once the offset is known
    return queue


def _heap_entries(columns: tuple[bytes, bytes]) -> list[int]:
    return [due_ms << 64 | seq for due_ms, seq in _pairs(columns)]


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[bytes, bytes]:
    left, right = array("Q"), array("Q")
    for a, b in pairs:
        left.append(a)
        right.append(b)
    return left.tobytes(), right.tobytes()


def _pairs(columns: tuple[bytes, bytes]) -> Iterable[tuple[int, int]]:
    left, right = array("Q"), array("Q")
    left.frombytes(columns[0])
    right.frombytes(columns[1])
    return zip(left, right, strict=True)


def _index_snapshot(entry: SegmentIndex) -> SegmentIndexSnapshot:
    columns = (entry.firsts, entry.offsets, entry.sizes, entry.times_ms)
    packed = (array(code, column).tobytes() for code, column in zip(_INDEX_CODES, columns, strict=True))
    return SegmentIndexSnapshot(entry.segment, *packed)


def _index_from(snapshot: SegmentIndexSnapshot) -> SegmentIndex:
    columns = [array(code) for code in _INDEX_CODES]
    packed = (snapshot.firsts, snapshot.offsets, snapshot.sizes, snapshot.times_ms)
    for column, values in zip(columns, packed, strict=True):
        column.frombytes(values)
    return make_index(snapshot.segment, columns)
