"""Decide appends: contiguous seqs or none, and deduplication by idempotency key, client mark and unique key."""

from __future__ import annotations

import msgspec

from tenure.contract.bounds import UNBOUND, Bounds
from tenure.contract.commands import Append
from tenure.contract.config import DEFAULTS, TopicConfig
from tenure.contract.names import check_client_id, check_key, check_topic_name
from tenure.contract.replies import Produced
from tenure.contract.values import check_flag
from tenure.core.decide.decision import Behind, Decided, Decision, ForgetKeys, Payloads, Refused, Steps
from tenure.core.decide.evict import evict_over_cap, evict_over_ttl
from tenure.core.decide.intake import Batch, admit, build_extra
from tenure.core.decide.limits import (
    check_broker_room,
    check_made_by_use,
    check_replicated,
    check_topic_room,
    read_config,
)
from tenure.core.events import Appended, AppendExtra, Event, TopicPut
from tenure.core.level import LEVELS, Level
from tenure.core.state.client_marks import MARK_IDLE_MS, MARK_KEPT_MS
from tenure.core.state.idempotency import digest_key, digest_payload
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, Invalid, NotFound, Overloaded

__all__ = ["append"]


def append(
    state: State, command: Append, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decided[Produced]:
    """Append records to a topic, creating it where that is allowed.

    Raises Invalid, NotFound, Conflict, Overloaded.
    """
    name, records = command.topic, command.records
    topic = state.topics.get(name) if name.__class__ is str else None
    if topic is not None and records.__class__ is list and len(records) == 1 and records[0].__class__ is bytes:
        plain = _append_one(state, topic, command, records[0], now_ms)
        if plain is not None:
            return plain
    if command.idempotency_key is not None and state.idempotency_keys >= state.settings.idempotency_keys_max:
        return _append_with_room(state, topic, command, now_ms, payloads, bounds)
    return _append_batch(state, topic, command, now_ms, payloads, bounds)


def _append_with_room(
    state: State, topic: Topic | None, command: Append, now_ms: int, payloads: Payloads, bounds: Bounds
) -> Steps[tuple[Produced, int] | Behind | Refused]:
    """Append with a key, after keys whose time has passed have made room for it."""
    yield ForgetKeys()
    decided = _append_batch(state, topic, command, now_ms, payloads, bounds)
    if isinstance(decided, Refused):
        return decided
    if not isinstance(decided, tuple):
        return (yield from decided)
    events, reply, level = decided
    if events is not None:
        yield events if isinstance(events, list) else [events]
    return reply, level


def _append_batch(
    state: State, topic: Topic | None, command: Append, now_ms: int, payloads: Payloads, bounds: Bounds
) -> Decided[Produced]:
    name, records, share = command.topic, command.records, bounds.share
    batch = admit(records, state.settings, node=command.node)
    if topic is None:
        config, topic_id, first_seq = _config_for_new(state, command, bounds), state.next_topic_id, 1
    else:
        config, topic_id, first_seq = topic.config, topic.id, topic.head_seq + 1
    check_replicated(state, config)
    extra: AppendExtra | None = None
    if batch.extras is not None or (
        command.idempotency_key is not None or command.client_id is not None or command.client_seq is not None
    ):
        known = _find_repeat(state, topic, batch, command, now_ms)
        if known is not None:
            return known
        extra = _build_extra(state, topic, batch, command, now_ms, config=config, first_seq=first_seq)
        if extra.key is not None and share is not None:
            share.take_key(name)
    packed = batch.packed
    if state.must_check_limits:
        check_broker_room(state, config, size=len(packed.blobs), share=share)
    ts_ms, count = now_ms + state.wall_offset_ms, packed.count
    event = Appended(now_ms, topic_id, ts_ms, first_seq, count, packed.ends, packed.blobs, packed.plain, extra)
    last_seq = first_seq + count - 1
    reply = Produced(name, first_seq, last_seq, count, topic is None, False, last_seq)
    events: Event | list[Event] = event
    if topic is None:
        events = [TopicPut(now_ms, topic_id, name, config, implicit=command.config is None), event]
    if config.ttl_ms or config.cap_records or config.cap_bytes:
        return _within_caps(state, topic, config, events, event, reply, now_ms=now_ms, payloads=payloads)
    return events, reply, LEVELS[config.durability]


def _append_one(state: State, topic: Topic, command: Append, data: bytes, now_ms: int) -> Decision[Produced] | None:
    """Append one bare record without keys, caps or limits to check, as most are; return None for any other."""
    config = topic.config
    if (
        len(data) > state.settings.record_bytes_max
        or state.must_check_limits
        or config.ttl_ms
        or config.cap_records
        or config.cap_bytes
        or (config.durability == "replicated" and not state.has_home)
        or command.node is not None
        or command.idempotency_key is not None
        or command.client_id is not None
        or command.client_seq is not None
    ):
        return None
    seq = topic.head_seq + 1
    event = Appended(now_ms, topic.id, now_ms + state.wall_offset_ms, seq, 1, b"", data, True)
    return event, Produced(topic.name, seq, seq, 1, False, False, seq), LEVELS[config.durability]


def _within_caps(
    state: State,
    topic: Topic | None,
    config: TopicConfig,
    events: Event | list[Event],
    event: Appended,
    reply: Produced,
    *,
    now_ms: int,
    payloads: Payloads,
) -> Steps[tuple[Produced, int] | Behind]:
    """Append to a topic with caps or a TTL: refuse what does not fit, or evict the excess afterwards."""
    if config.discard == "reject":
        # Expired records must not take the place of new ones.
        if topic is not None and not (yield from evict_over_ttl(state, topic, now_ms, payloads)):
            return Behind(topic)
        check_topic_room(topic, config, records=event.count, size=len(event.blobs))
    yield events if isinstance(events, list) else [events]
    grown = state.by_id[event.topic]
    yield from evict_over_ttl(state, grown, now_ms, payloads)
    yield from evict_over_cap(state, grown, now_ms, payloads)
    return reply, LEVELS[config.durability]


def _config_for_new(state: State, command: Append, bounds: Bounds) -> TopicConfig:
    name = check_topic_name(command.topic)
    if not check_flag(command.create, "create"):
        raise NotFound(f"no topic {name!r} and create is false: create it first", code="topic_not_found", topic=name)
    config = DEFAULTS if command.config is None else read_config(state, command.config, topic=name)
    if not config.auto_create:
        raise NotFound(f"no topic {name!r} and auto_create is false: put it first", code="topic_not_found", topic=name)
    check_made_by_use(state, name, share=bounds.share)
    return config


def _find_repeat(
    state: State, topic: Topic | None, batch: Batch, command: Append, now_ms: int
) -> Decision[Produced] | Refused | None:
    """Return the reply to an append that was made before, or None.

    Raises Conflict where a key was used for another payload, or a client_seq is not above the mark; that is Refused
    while the records of that use are not durable.
    """
    bytes_max = state.settings.key_bytes_max
    if command.idempotency_key is not None:
        check_key(command.idempotency_key, bytes_max=bytes_max)
    if (command.client_id is None) != (command.client_seq is None):
        raise Invalid("client_id and client_seq go together")
    if command.client_id is not None:
        check_client_id(command.client_id, bytes_max=bytes_max)
        if type(command.client_seq) is not int or not 0 <= command.client_seq < 1 << 63:
            raise Invalid("client_seq must be an integer from 0 to 2**63 - 1")
    if topic is None:
        return None
    if command.idempotency_key is not None and (known := _by_key(topic, batch, command.idempotency_key, now_ms)):
        return known
    if command.client_id is not None and command.client_seq is not None:
        refused = _check_mark(topic, command.client_id, command.client_seq, now_ms)
        if refused is not None:
            return refused
    return _by_unique(topic, batch)


def _by_key(topic: Topic, batch: Batch, key: str, now_ms: int) -> Decision[Produced] | Refused | None:
    entry = topic.keys.get(digest_key(key), now_ms) if topic.keys is not None else None
    if entry is None:
        return None
    if entry.payload_digest != digest_payload(batch.packed.blobs, batch.packed.ends):
        return _used(
            topic,
            entry.first_seq + entry.count - 1,
            "this idempotency key was used for another payload: use a new key for new records",
            first_seq=entry.first_seq,
        )
    return _repeat(topic, entry.first_seq, entry.count)


def _check_mark(topic: Topic, client_id: str, client_seq: int, now_ms: int) -> Refused | None:
    mark = topic.marks.get(client_id) if topic.marks is not None else None
    if mark is None or client_seq > mark.last_client_seq or mark.at_ms < now_ms - MARK_IDLE_MS:
        return None
    seqs = {"first_seq": mark.first_seq, "last_seq": mark.last_seq} if client_seq == mark.last_client_seq else {}
    return _used(
        topic,
        mark.last_seq,
        f"client_seq {client_seq} is not above {mark.last_client_seq}: it was appended before",
        last_client_seq=mark.last_client_seq,
        **seqs,
    )


def _used(topic: Topic, upto_seq: int, message: str, **detail: int) -> Refused:
    """Return the refusal of a key or mark that the records up to a seq have used; raise it where these are durable."""
    level, error = _level_of(topic, upto_seq), Conflict(message, code="idempotency_conflict", **detail)
    if level == Level.NOW:
        raise error
    return Refused(error, level)


def _by_unique(topic: Topic, batch: Batch) -> Decision[Produced] | None:
    if batch.extras is None or topic.queue is None or all(r.unique_key is None for r in batch.extras):
        return None
    if len(batch.extras) != 1:
        raise Invalid("a record with a unique_key must be appended alone")
    living = topic.queue.uniques.get(batch.extras[0].unique_key or "")
    return None if living is None else _repeat(topic, living, 1)


def _repeat(topic: Topic, first_seq: int, count: int) -> Decision[Produced]:
    """Reply as the first time; where those records are not durable yet, this reply waits for them too."""
    last_seq = first_seq + count - 1
    reply = Produced(topic.name, first_seq, last_seq, count, deduped=True, head_seq=topic.head_seq)
    return None, reply, _level_of(topic, last_seq)


def _level_of(topic: Topic, last_seq: int) -> int:
    """Return the level that an answer about records up to this seq waits for."""
    return Level.NOW if last_seq <= topic.durable_seq else LEVELS[topic.config.durability]


def _check_uniques(state: State, topic: Topic | None, batch: Batch) -> None:
    if batch.packed.count > 1:
        raise Invalid("a record with a unique_key must be appended alone")
    limit, queue = state.settings.unique_keys_max, topic.queue if topic is not None else None
    if queue is not None and len(queue.uniques) >= limit:
        raise Overloaded(f"{limit} unique keys are alive in this queue", limit="unique_keys_max", max=limit)


def _client_to_displace(state: State, topic: Topic | None, client_id: str, now_ms: int) -> str | None:
    """Return the client whose mark gives way to a new one, or None while there is room.

    Raises Overloaded where every mark is so young that its producer may still repeat its last call.
    """
    limit, marks = state.settings.client_marks_max, topic.marks if topic is not None else None
    if marks is None or len(marks) < limit or marks.get(client_id) is not None:
        return None
    oldest = marks.oldest()
    if oldest is None or oldest[1].at_ms >= now_ms - MARK_KEPT_MS:
        raise Overloaded(
            f"{limit} clients appended to this topic in the last {MARK_KEPT_MS // 60_000} minutes and are remembered",
            limit="client_marks_max",
            max=limit,
        )
    return oldest[0]


def _build_extra(
    state: State,
    topic: Topic | None,
    batch: Batch,
    command: Append,
    now_ms: int,
    *,
    config: TopicConfig,
    first_seq: int,
) -> AppendExtra:
    extra = AppendExtra()
    if batch.extras is not None:
        extra = build_extra(batch.extras, first_seq, now_ms=now_ms, is_queue=config.type == "queue")
    if extra.uniques:
        _check_uniques(state, topic, batch)
    key = client = displaced = None
    if command.idempotency_key is not None:
        limit = state.settings.idempotency_keys_max
        if state.idempotency_keys >= limit:
            raise Overloaded("too many idempotency keys are remembered", limit="idempotency_keys_max", max=limit)
        payload = digest_payload(batch.packed.blobs, batch.packed.ends)
        window_ms = min(config.idempotency_window_ms, state.settings.idempotency_window_ms_max)
        key = (digest_key(command.idempotency_key), payload, now_ms + window_ms)
    if command.client_id is not None and command.client_seq is not None:
        client = (command.client_id, command.client_seq)
        displaced = _client_to_displace(state, topic, command.client_id, now_ms)
    return msgspec.structs.replace(extra, key=key, client=client, displaced=displaced)
