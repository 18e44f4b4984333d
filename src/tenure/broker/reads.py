"""Reading a log by seq, deleting from it, and looking at a queue without touching it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from tenure.broker.answer import LEVELS, Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_ttl
from tenure.broker.paging import after_number, clamp_limit, cursor_of
from tenure.contract.leases import lease_id
from tenure.contract.records import Stored
from tenure.contract.replies import DeletedRecords, Difference, Page, Tombstone
from tenure.core.events import Deleted
from tenure.core.matching import Match, parse_match
from tenure.core.names import check_node, shown
from tenure.core.queue import Queue
from tenure.core.ranges import count, each, to_runs
from tenure.core.topic import Topic
from tenure.core.values import check_seqs, check_whole
from tenure.errors import Corrupt, Invalid, NotFound

__all__ = ["delete_records", "describe", "diff", "due_times", "job", "jobs", "leases", "state_of"]

_STATES = ("ready", "in_flight", "delayed", "parked")
_WINDOW = 256


def diff(
    engine: Engine, name: str, *, from_seq: int = 0, limit: int = 256, node: str | Collection[str] | None = None
) -> Difference:
    """Read records above ``from_seq``, leaving out those written by ``node`` where the topic filters by it.

    An answer ends before a record that cannot be read. A read that begins there raises Corrupt, and its
    ``next_from_seq`` is where to go on behind the damage.
    """
    topic = engine.state.topic(name)
    check_whole(from_seq, "from_seq")
    check_whole(limit, "limit")
    nodes = _check_nodes(node)
    now = engine.now()
    evict_over_ttl(engine, topic, now)
    topic.last_read_ms = now + engine.state.wall_offset_ms
    head, tombstone = topic.visible_seq, _tombstone(topic, from_seq)
    if from_seq > head:
        from_seq = 0 if tombstone is not None else head
    if not topic.config.dedupe_node:
        nodes = set()
    limit = min(limit, engine.settings.diff_records_max) or 1
    records, reached, damage = _collect(engine, topic, from_seq, head, limit=limit, nodes=nodes)
    if damage is not None and not records and (tombstone is None or reached <= from_seq):
        raise damage
    return Difference(name, records, reached, head, topic.floor, tombstone)


def _check_nodes(node: str | Collection[str] | None) -> set[str]:
    """The nodes whose records the reader does not want."""
    if node is None:
        return set()
    if isinstance(node, str):
        return {check_node(node)}
    if not isinstance(node, (list, tuple, set, frozenset)):
        raise Invalid(f"node must be a string or a list of strings; got {shown(node)}")
    return set(map(check_node, node))


def _collect(
    engine: Engine, topic: Topic, from_seq: int, head: int, *, limit: int, nodes: set[str]
) -> tuple[list[Stored], int, Corrupt | None]:
    """Records to answer with, the last seq that was looked at, and what stopped the look there if it is damage."""
    found: list[Stored] = []
    budget, lo = engine.settings.diff_bytes_max, max(from_seq + 1, topic.floor)
    while lo <= head:
        hi = min(lo + _WINDOW, head + 1)
        records, lost = engine.reader.sift(topic, topic.live_runs(lo, hi))
        end = min(lost, default=hi)
        for record in records:
            if record.seq > end:
                break
            if record.node is not None and record.node in nodes:
                continue
            budget -= len(record.data) + len(record.meta or b"")
            if found and (budget < 0 or len(found) == limit):
                return found, record.seq - 1, None
            found.append(record)
        if lost:
            return found, end - 1, _damage(topic, records, lost)
        lo = hi
    return found, max(head, from_seq) if from_seq <= head else head, None


def _damage(topic: Topic, records: list[Stored], lost: dict[int, Corrupt]) -> Corrupt:
    """The error for the first seqs that are lost, up to the next record that can be read."""
    first = min(lost)
    behind = min((record.seq for record in records if record.seq > first), default=max(lost) + 1)
    last, error = max(seq for seq in lost if seq < behind), lost[first]
    message = f"seqs {first} to {last} of {topic.name!r} cannot be read; go on from_seq {last}. {error.message}"
    about = {"first_seq": first, "last_seq": last, "next_from_seq": last}
    return Corrupt(message, code=error.code, **{**error.detail, **about})


def _tombstone(topic: Topic, from_seq: int) -> Tombstone | None:
    """What this reader missed and nobody asked to remove, or None."""
    head, earliest = topic.visible_seq, topic.floor
    if from_seq > topic.head_seq:
        return Tombstone(1, topic.head_seq, "recreated", topic.head_seq, earliest, head)
    if from_seq >= head:
        return None  # what was lost behind it is not durable yet, and is told once it is
    by_cap, by_ttl = from_seq + 1 < topic.cap_floor, from_seq + 1 < topic.ttl_floor
    if by_cap or by_ttl:
        reason = "mixed" if by_cap and by_ttl else "cap" if by_cap else "ttl"
        gap_to = min(topic.evict_floor - 1, head)
        return Tombstone(from_seq + 1, gap_to, reason, gap_to - from_seq, earliest, head)
    if from_seq < topic.trim_seq <= head:
        return Tombstone(topic.trim_seq, topic.trim_seq, "source_trim", topic.trim_missed, earliest, head)
    return None


def delete_records(
    engine: Engine,
    name: str,
    *,
    before_seq: int | None = None,
    match: object = None,
    seqs: Sequence[int] | None = None,
) -> Answer[DeletedRecords]:
    """Remove records for good, at the cost of the matches; several conditions are ANDed. Raises Invalid where none is
    given.
    """
    topic = engine.state.topic(name)
    if before_seq is None and match is None and seqs is None:
        raise Invalid("say what to delete: before_seq, match or seqs")
    if before_seq is not None:
        check_whole(before_seq, "before_seq")
    if seqs is not None:
        check_seqs(seqs, count_max=engine.settings.records_max, limit="records_max")
    wanted = parse_match(match, bytes_max=engine.settings.tag_bytes_max) if match is not None else None
    now = engine.now()
    engine.pass_time(topic, now)
    runs = _victims(topic, before_seq, wanted, seqs)
    batch, level, deleted = 0, Level.NOW, count(runs)
    if runs:
        size = engine.reader.weigh(topic, runs)
        batch = engine.commit(Deleted(now, topic.id, runs, deleted, size), topic.id, urgent=True)
        level = LEVELS[topic.config.durability]
        engine.metrics.deleted += deleted
        engine.touched.add(topic)
    return Answer(
        DeletedRecords(name, deleted, topic.floor, topic.head_seq, topic.count, topic.bytes), batch, level, engine.gate
    )


def _victims(topic: Topic, before_seq: int | None, wanted: Match | None, seqs: Sequence[int] | None) -> list[int]:
    end = topic.head_seq + 1 if before_seq is None else min(before_seq, topic.head_seq + 1)
    if wanted is None and seqs is None:
        return topic.live_runs(topic.floor, end)
    chosen: set[int] | None = None
    if wanted is not None:
        if topic.tags is None:
            return []
        chosen = set(
            topic.tags.exact(wanted.exact) if wanted.exact is not None else topic.tags.prefix(wanted.prefix or "")
        )
    if seqs is not None:
        chosen = set(seqs) if chosen is None else chosen & set(seqs)
    assert chosen is not None
    return to_runs(seq for seq in chosen if seq < end and not topic.is_dead(seq))


# Looking at a queue


def jobs(engine: Engine, name: str, *, state: str = "ready", limit: int = 100, cursor: str | None = None) -> Page:
    """Jobs in one state, ascending by seq, from the one after ``cursor`` on."""
    topic, queue = engine.state.queue(name)
    if state not in _STATES:
        raise Invalid(f"state must be one of {', '.join(_STATES)}")
    limit, after = clamp_limit(limit, engine.settings), after_number(cursor)
    engine.pass_time(topic, engine.now())
    seqs = _in_state(topic, queue, state, after, limit + 1)
    dues = due_times(queue, set(seqs), engine.state.wall_offset_ms) if state == "delayed" else {}
    items = [describe(engine, queue, seq, state, dues.get(seq)) for seq in seqs[:limit]]
    return Page(items, cursor_of(seqs[limit - 1]) if len(seqs) > limit else None)


def _in_state(topic: Topic, queue: Queue, state: str, cursor: int, wanted: int) -> list[int]:
    match state:
        case "in_flight":
            return sorted(seq for seq in queue.in_flight if seq > cursor)[:wanted]
        case "parked":
            return sorted(seq for seq in queue.parked if seq > cursor)[:wanted]
        case "delayed":
            return list(islice(queue.delayed.iter_equal_or_larger(cursor + 1), wanted))
        case _:
            return _ready(topic, queue, cursor, wanted)


def _ready(topic: Topic, queue: Queue, cursor: int, wanted: int) -> list[int]:
    found = list(islice(queue.reclaim.iter_equal_or_larger(cursor + 1), wanted))
    lo = max(queue.cursor, cursor + 1)
    while len(found) < wanted and lo <= topic.visible_seq:
        hi = min(lo + _WINDOW, topic.visible_seq + 1)
        fresh = (s for s in each(topic.live_runs(lo, hi)) if s not in queue.delayed and s not in queue.parked)
        found += islice(fresh, wanted - len(found))
        lo = hi
    return found


def due_times(queue: Queue, seqs: set[int], wall_offset_ms: int) -> dict[int, int]:
    """When delayed jobs come back, in wall time; the heaps are looked through once per page."""
    low = (1 << 64) - 1
    dues = {e & low: (e >> 64) + wall_offset_ms for e in queue.delays if e & low in seqs}
    return dues | {e & low: e >> 64 for e in queue.wall_delays if e & low in seqs}


def describe(engine: Engine, queue: Queue, seq: int, state: str, due: int | None = None) -> dict[str, Any]:
    """A job as listings show it: where it stands, who holds it until when, why it last came back."""
    item: dict[str, Any] = {"seq": seq, "state": state, "deliveries": queue.deliveries.get(seq, 0)}
    lease = queue.in_flight.get(seq)
    if lease is not None:
        item["deliveries"] = queue.deliveries.get(seq, 1)
        item |= {"node": lease.node, "lease_id": lease_id(lease.number)}
        item["since"] = lease.since + engine.state.wall_offset_ms
        item["deadline"] = lease.deadline + engine.state.wall_offset_ms
    if due is not None:
        item["deliver_at"] = due
    reason = queue.parked.get(seq) or queue.last_reason(seq)
    if reason is not None:
        item["reason"] = reason
    return item


def job(engine: Engine, name: str, seq: int) -> tuple[Stored, dict[str, Any]]:
    """One job: its record, and where it stands with the deliveries that failed so far."""
    topic, queue = engine.state.queue(name)
    check_whole(seq, "seq")
    engine.pass_time(topic, engine.now())
    if topic.is_dead(seq) or seq > topic.visible_seq:
        raise NotFound(f"no job {shown(seq)} in {name!r}: it was never there, or it is done", seq=seq)
    offset = engine.state.wall_offset_ms
    state = state_of(queue, seq)
    dues = due_times(queue, {seq}, offset) if state == "delayed" else {}
    about = describe(engine, queue, seq, state, dues.get(seq))
    about["history"] = [
        {
            "lease_id": lease_id(d.lease),
            "node": d.node,
            "from": d.since + offset,
            "to": d.until + offset,
            "end": d.end,
            "reason": d.reason,
        }
        for d in queue.histories.get(seq, ())
    ]
    return engine.reader.records(topic, [seq, 1])[0], about


def state_of(queue: Queue, seq: int) -> str:
    """Where a live job stands."""
    if seq in queue.in_flight:
        return "in_flight"
    if seq in queue.parked:
        return "parked"
    return "delayed" if seq in queue.delayed else "ready"


def leases(engine: Engine, name: str, *, limit: int = 100, cursor: str | None = None) -> Page:
    """Live leases by number: who holds which jobs, since when, and when the first of them comes back."""
    topic, queue = engine.state.queue(name)
    limit, after = clamp_limit(limit, engine.settings), after_number(cursor)
    engine.pass_time(topic, engine.now())
    numbers = sorted(number for number in queue.leases if number > after)[: limit + 1]
    offset = engine.state.wall_offset_ms
    items = [
        {
            "lease_id": lease_id(number),
            "node": queue.leases[number].node,
            "since": queue.leases[number].since + offset,
            "deadline": queue.deadline(number) + offset,
            "seqs": queue.held(number),
        }
        for number in numbers[:limit]
    ]
    return Page(items, cursor_of(numbers[limit - 1]) if len(numbers) > limit else None)
