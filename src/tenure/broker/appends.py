"""Appending: one call, contiguous seqs or none, each call at most once where the caller names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tenure.broker.answer import LEVELS, Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_cap, evict_over_ttl
from tenure.broker.intake import Batch, admit, build_extra
from tenure.broker.room import Share, check_broker_room, check_made_by_use, check_share, check_topic_room, read_config
from tenure.contract.records import Record
from tenure.contract.replies import Produced
from tenure.core.config import DEFAULTS, TopicConfig
from tenure.core.events import Appended, AppendExtra, TopicPut
from tenure.core.fold import MARKS_IDLE_MS
from tenure.core.idempotency import digest_key, digest_payload
from tenure.core.marks import MARK_KEPT_MS
from tenure.core.names import check_client_id, check_key, check_topic_name
from tenure.core.records import Packed
from tenure.core.topic import Topic
from tenure.core.values import check_flag
from tenure.errors import Conflict, Invalid, NotFound, Overloaded

__all__ = ["produce"]


def produce(
    engine: Engine,
    name: str,
    records: Sequence[bytes | Record],
    node: str | None = None,
    idempotency_key: str | None = None,
    client_id: str | None = None,
    client_seq: int | None = None,
    create: bool = True,
    config: Mapping[str, Any] | None = None,
    share: Share | None = None,
) -> Answer[Produced]:
    """Append records to a topic, creating it where that is allowed.

    Raises Invalid, NotFound, Conflict, Overloaded, Closed.
    """
    state = engine.state
    topic = state.find(name)
    if share is not None:
        check_share(share)
    alone = records[0] if records.__class__ is list and len(records) == 1 and node is None else None
    if alone.__class__ is bytes and len(alone) <= engine.settings.record_bytes_max:  # most puts are this plain
        batch = Batch(Packed(1, b"", alone, True))
    else:
        batch = admit(records, engine.settings, node=node)
    if topic is None:
        settings = _settings_for_new(engine, name, create=create, config=config, share=share)
        first_seq = 1
    else:
        settings, first_seq = topic.config, topic.head_seq + 1
    now = engine.held_ms or engine.now()
    extra: AppendExtra | None = None
    if batch.extras is not None or idempotency_key is not None or client_id is not None or client_seq is not None:
        named = _Name(idempotency_key, client_id, client_seq)
        known = _find_repeat(engine, topic, batch, named, now)
        if known is not None:
            return known
        extra = _extra(engine, topic, batch, named, now=now, config=settings, first_seq=first_seq)
        if extra.key is not None and share is not None:
            share.take_key(name)
    packed = batch.packed
    size = len(packed.blobs)
    if engine.crowded:
        check_broker_room(engine, settings, size=size)
    if settings.discard == "reject":
        if topic is not None:
            evict_over_ttl(engine, topic, now)  # else what has passed its time would hold the place of new records
        check_topic_room(topic, settings, records=packed.count, size=size)
    ts = now + state.wall_offset_ms
    topic_id = topic.id if topic is not None else state.next_topic_id
    event = Appended(now, topic_id, ts, first_seq, packed.count, packed.ends, packed.blobs, packed.plain, extra)
    if topic is None:
        put = TopicPut(now, topic_id, name, settings, implicit=config is None)
        at = engine.commit_all((put, topic_id), (event, topic_id))
        topic, created = state.topics[name], True
    else:
        at, created = engine.commit(event, topic_id), False
    engine.metrics.produced += packed.count
    if settings.ttl_ms or settings.cap_records or settings.cap_bytes:
        evict_over_ttl(engine, topic, now)
        evict_over_cap(engine, topic, now)
    return Answer(
        Produced(name, first_seq, first_seq + packed.count - 1, packed.count, created, head_seq=topic.head_seq),
        at,
        LEVELS[settings.durability],
        engine.gate,
    )


class _Name(msgspec.Struct, frozen=True, gc=False):
    """How a caller named its append, so that a repeat is told from a new one."""

    key: str | None
    client_id: str | None
    client_seq: int | None


def _settings_for_new(
    engine: Engine, name: str, *, create: bool, config: Mapping[str, Any] | None, share: Share | None
) -> TopicConfig:
    check_topic_name(name)
    if not check_flag(create, "create"):
        raise NotFound(f"no topic {name!r} and create is false: create it first", code="topic_not_found", topic=name)
    settings = DEFAULTS if config is None else read_config(engine, config, topic=name)
    if not settings.auto_create:
        raise NotFound(f"no topic {name!r} and auto_create is false: put it first", code="topic_not_found", topic=name)
    check_made_by_use(engine, name, share=share)
    return settings


def _find_repeat(engine: Engine, topic: Topic | None, batch: Batch, named: _Name, now: int) -> Answer[Produced] | None:
    """The answer to an append that was made before, or None.

    Raises Conflict where a name was used for something else.
    """
    settings = engine.settings
    if named.key is not None:
        check_key(named.key, bytes_max=settings.key_bytes_max)
    if (named.client_id is None) != (named.client_seq is None):
        raise Invalid("client_id and client_seq go together")
    if named.client_id is not None:
        check_client_id(named.client_id, bytes_max=settings.key_bytes_max)
        if type(named.client_seq) is not int or not 0 <= named.client_seq < 1 << 63:
            raise Invalid("client_seq must be an integer from 0 to 2**63 - 1")
    if topic is None:
        return None
    if named.key is not None and (known := _by_key(engine, topic, batch, named.key, now)):
        return known
    if named.client_id is not None:
        _check_mark(topic, named, now)
    return _by_unique(engine, topic, batch)


def _by_key(engine: Engine, topic: Topic, batch: Batch, key: str, now: int) -> Answer[Produced] | None:
    entry = topic.keys.get(digest_key(key), now) if topic.keys is not None else None
    if entry is None:
        return None
    if entry.payload_digest != digest_payload(batch.packed.blobs, batch.packed.ends):
        raise Conflict(
            "this idempotency key was used for another payload: use a new key for new records",
            code="idempotency_conflict",
            first_seq=entry.first_seq,
        )
    return _repeat(engine, topic, entry.first_seq, entry.count)


def _check_mark(topic: Topic, named: _Name, now: int) -> None:
    assert named.client_id is not None
    assert named.client_seq is not None
    mark = topic.marks.get(named.client_id) if topic.marks is not None else None
    if mark is None or named.client_seq > mark.last_client_seq or mark.at_ms < now - MARKS_IDLE_MS:
        return
    seqs = {"first_seq": mark.first_seq, "last_seq": mark.last_seq} if named.client_seq == mark.last_client_seq else {}
    raise Conflict(
        f"client_seq {named.client_seq} is not above {mark.last_client_seq}: it was appended before",
        code="idempotency_conflict",
        last_client_seq=mark.last_client_seq,
        **seqs,
    )


def _by_unique(engine: Engine, topic: Topic, batch: Batch) -> Answer[Produced] | None:
    if batch.extras is None or topic.queue is None or all(r.unique_key is None for r in batch.extras):
        return None
    if len(batch.extras) != 1:
        raise Invalid("a record with a unique_key must be appended alone")
    living = topic.queue.uniques.get(batch.extras[0].unique_key or "")
    return None if living is None else _repeat(engine, topic, living, 1)


def _repeat(engine: Engine, topic: Topic, first_seq: int, count: int) -> Answer[Produced]:
    """The first answer again; where that copy is not durable yet, this one waits for it too."""
    durable = first_seq + count - 1 <= topic.durable_seq
    level = Level.NOW if durable else LEVELS[topic.config.durability]
    reply = Produced(topic.name, first_seq, first_seq + count - 1, count, deduped=True, head_seq=topic.head_seq)
    return Answer(reply, engine.write(), level, engine.gate)


def _check_uniques(engine: Engine, topic: Topic | None, batch: Batch) -> None:
    if batch.packed.count > 1:
        raise Invalid("a record with a unique_key must be appended alone")
    limit, queue = engine.settings.unique_keys_max, topic.queue if topic is not None else None
    if queue is not None and len(queue.uniques) >= limit:
        raise Overloaded(f"{limit} unique keys are alive in this queue", limit="unique_keys_max", max=limit)


def _displaced(engine: Engine, topic: Topic | None, client_id: str, now: int) -> str | None:
    """Return the client whose mark gives way to a new one, or None while there is room.

    Raises Overloaded where every mark is so young that its producer may still repeat its last call.
    """
    limit, marks = engine.settings.client_marks_max, topic.marks if topic is not None else None
    if marks is None or len(marks) < limit or marks.get(client_id) is not None:
        return None
    oldest = marks.oldest()
    if oldest is None or oldest[1].at_ms >= now - MARK_KEPT_MS:
        raise Overloaded(
            f"{limit} clients appended to this topic in the last {MARK_KEPT_MS // 60_000} minutes and are remembered",
            limit="client_marks_max",
            max=limit,
        )
    return oldest[0]


def _extra(
    engine: Engine,
    topic: Topic | None,
    batch: Batch,
    named: _Name,
    *,
    now: int,
    config: TopicConfig,
    first_seq: int,
) -> AppendExtra:
    extra = (
        AppendExtra()
        if batch.extras is None
        else build_extra(batch.extras, first_seq, now=now, queue=config.type == "queue")
    )
    if extra.uniques:
        _check_uniques(engine, topic, batch)
    key = client = displaced = None
    if named.key is not None:
        limit = engine.settings.idempotency_keys_max
        if engine.state.idempotency_keys >= limit and engine.state.expire_keys(now) >= limit:
            raise Overloaded("too many idempotency keys are remembered", limit="idempotency_keys_max", max=limit)
        payload = digest_payload(batch.packed.blobs, batch.packed.ends)
        window_ms = min(config.idempotency_window_ms, engine.settings.idempotency_window_ms_max)
        key = (digest_key(named.key), payload, now + window_ms)
    if named.client_id is not None and named.client_seq is not None:
        client = (named.client_id, named.client_seq)
        displaced = _displaced(engine, topic, named.client_id, now)
    return msgspec.structs.replace(extra, key=key, client=client, displaced=displaced)
