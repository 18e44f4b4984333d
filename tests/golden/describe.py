"""The folded state in plain words: a description that no change of the snapshot format changes.

A fact that a later version adds to the state is not part of it; every fact that is must read the same for ever.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.structs import asdict, fields

from tenure.broker.engine import Engine
from tenure.contract.config import DEFAULTS, TopicConfig
from tenure.core.state.queue import Queue
from tenure.core.state.topic import Topic
from tests.kit import run

__all__ = ["describe"]


def describe(engine: Engine) -> dict[str, Any]:
    """Describe everything that is folded."""
    state = engine.state
    return {
        "epoch": state.epoch,
        "boot_id": state.boot_id,
        "wall_offset_ms": state.wall_offset_ms,
        "next_topic_id": state.next_topic_id,
        "leases_given": state.leases_given,
        "jobs": state.jobs,
        "live_bytes": state.live_bytes,
        "idempotency_keys": state.idempotency_keys,
        "retired": sorted(state.retired),
        "routers": {
            name: [router.source, router.dest, router.filter, router.cursor, router.forwarded]
            for name, router in sorted(state.routers.items())
        },
        "topics": {name: _topic(engine, topic) for name, topic in sorted(state.topics.items())},
    }


def _topic(engine: Engine, topic: Topic) -> dict[str, Any]:
    records = run.diff(engine, topic.name, limit=1000).records
    about = {
        "id": topic.id,
        "config": _config(topic.config),
        "created_ms": topic.created_ms,
        "implicit": topic.implicit,
        "head_seq": topic.head_seq,
        "floor": topic.floor,
        "count": topic.count,
        "bytes": topic.bytes,
        "cap_floor": topic.cap_floor,
        "ttl_floor": topic.ttl_floor,
        "last_write_ms": topic.last_write_ms,
        "records": _digest([[r.seq, r.ts, r.data.decode(), r.tag, r.node, str(r.meta)] for r in records]),
        "tags": len(topic.tags) if topic.tags is not None else 0,
        "keys": len(topic.keys) if topic.keys is not None else 0,
        "marks": len(topic.marks) if topic.marks is not None else 0,
    }
    if topic.marks is not None:
        about["mark"] = str(topic.marks.get("client"))
    return about if topic.queue is None else about | {"queue": _queue(topic.queue)}


def _config(config: TopicConfig) -> dict[str, Any]:
    """The fields that are not as they are by default, so that a later field changes nothing here."""
    values = {field.name: getattr(config, field.name) for field in fields(TopicConfig)}
    changed = {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
    return {name: asdict(value) if name == "retry_backoff" else value for name, value in changed.items()}


def _queue(queue: Queue) -> dict[str, Any]:
    numbers = queue.leases.numbers_after(0, 1_000_000)
    leases = [(number, lease) for number in numbers if (lease := queue.lease(number)) is not None]
    rows = [[n, lease.node, lease.since_ms, lease.deadline_ms, lease.claim_id, queue.held(n)] for n, lease in leases]
    return _losses(queue) | {
        "cursor": queue.cursor,
        "acked_max": queue.acked_max,
        "dead_lettered": queue.dead_lettered,
        "expired": queue.expired,
        "leases": rows if len(rows) <= 10 else [*rows[:3], *rows[-3:], len(rows), _digest(rows)],
        "reclaim": list(queue.reclaim),
        "delays": queue.delays.living(queue.delays.by_log),
        "wall_delays": queue.delays.living(queue.delays.by_wall),
        "deliveries": sorted(queue.deliveries.items()),
        "parked": sorted(queue.parked.items()),
        "copies": sorted((seq, copy >> 64, copy & (1 << 64) - 1) for seq, copy in queue.copies.items()),
        "uniques": sorted(queue.uniques.items()),
        "failed": [
            [seq, [[each.lease, each.node, each.since_ms, each.until_ms, each.end, each.reason] for each in deliveries]]
            for seq, deliveries in sorted(queue.deliveries_ended.items())
        ],
    }


def _losses(queue: Queue) -> dict[str, Any]:
    """What is known of losses and returns; nothing where there were none, as in directories from before."""
    line, groups = queue.suspects, {}
    for number in queue.leases.numbers_after(0, 1_000_000):
        row = queue.leases.row_of(number)
        group = None if row is None else queue.leases.group(row)
        if group is not None:
            groups[str(number)] = group
    if not line.pasts.jobs and not groups:
        return {}
    return {
        "lost": queue.lost,
        "groups": groups,
        "pasts": [[seq, *line.pasts.get(seq)] for seq in line.pasts],
        "suspects": list(line.ready),
        "begun": [[seq, *begun] for seq, begun in sorted(line.begun.items())],
    }


def _digest(rows: list[list[Any]]) -> list[Any]:
    """The rows themselves where they are few, else their number and a digest of them."""
    if len(rows) <= 10:
        return rows
    return [len(rows), hashlib.sha256(repr(rows).encode()).hexdigest()]
