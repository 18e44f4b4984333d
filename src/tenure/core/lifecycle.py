"""Lifecycle rows: the events of the log about jobs, as event streams and export tables show them.

Rows may be ranges: a thousand jobs claimed together are one row. ``expired`` is not in the log; it is derived from
the fold and stamped with the deadline; so is ``lost`` where a lease that isolates ran out.
"""

from __future__ import annotations

import msgspec

from tenure.contract.records import lease_id
from tenure.contract.replies import Lifecycle
from tenure.core.events import (
    Acked,
    Appended,
    AppendExtra,
    Begun,
    Claimed,
    DeadLettered,
    Event,
    Extended,
    Lost,
    Redriven,
    Released,
    Returned,
)
from tenure.core.state.lease import Ended
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["expired", "translate"]


def translate(state: State, event: Event) -> Lifecycle | None:
    """Return the row for an event that is about to be folded, or None where it is not about jobs."""
    topic_id = getattr(event, "topic", 0)
    topic = state.by_id.get(topic_id)
    if topic is None:
        return None
    ts_ms, offset_ms = event.at_ms + state.wall_offset_ms, state.wall_offset_ms
    match event:
        case Appended():
            row = Lifecycle("produced", topic.name, ts_ms, [event.first_seq, event.count])
            return row if event.extra is None else _with_extra(state, row, event.extra)
        case Claimed():
            shared = _deliveries(topic.queue, event.runs, plus=1)
            number = lease_id(event.lease)
            return Lifecycle(
                "claimed", topic.name, ts_ms, event.runs, event.node, number, shared, event.deadline_ms + offset_ms
            )
        case Acked():
            return _row("acked", topic, ts_ms, event.runs, node=event.node)
        case Released():
            row = _row("released", topic, ts_ms, event.runs, node=event.node, reason=event.reason or event.cause)
            first_ms = min(event.dues_ms) if event.dues_ms else event.due_ms
            return row if first_ms <= event.at_ms else msgspec.structs.replace(row, deliver_at=first_ms + offset_ms)
        case Begun() if not event.is_over:
            return _row("begun", topic, ts_ms, event.runs, node=event.node)
        case Returned():
            row = _row("returned", topic, ts_ms, event.runs, node=event.node, reason=event.reason)
            is_due = event.due_ms <= event.at_ms
            return row if is_due else msgspec.structs.replace(row, deliver_at=event.due_ms + offset_ms)
        case Lost():
            reason = None if event.exit_code is None else f"exit code {event.exit_code}"
            return _row("lost", topic, ts_ms, event.runs, node=event.node, reason=reason)
        case Extended():
            row = _row("extended", topic, ts_ms, event.runs, node=event.node)
            return msgspec.structs.replace(row, deadline=event.deadline_ms + offset_ms)
        case DeadLettered():
            row = _row("dead_lettered", topic, ts_ms, event.runs, reason=event.reason)
            return msgspec.structs.replace(row, dest=_name(state, event.dest))
        case Redriven():
            return Lifecycle("redriven", topic.name, ts_ms, event.runs, dest=_name(state, event.dest) or topic.name)
        case _:
            return None


def _with_extra(state: State, row: Lifecycle, extra: AppendExtra) -> Lifecycle:
    """Add when the first delayed record comes due, in wall time, and the topic that moved records come from."""
    dues_ms = [*(due_ms + state.wall_offset_ms for due_ms in extra.delays[1::2]), *extra.wall_delays[1::2]]
    origin = (_name(state, extra.moved_from) or "") if extra.moved_from else None
    return msgspec.structs.replace(row, deliver_at=min(dues_ms, default=None), origin=origin)


def expired(state: State, topic: Topic, ended: Ended) -> Lifecycle:
    """Return the row for a lease that ran out, stamped with its deadline."""
    return Lifecycle(
        ended.end,
        topic.name,
        ended.deadline_ms + state.wall_offset_ms,
        ended.runs,
        ended.node,
        lease_id(ended.lease),
        _deliveries(topic.queue, ended.runs),
    )


def _row(
    kind: str, topic: Topic, ts_ms: int, runs: list[int], *, node: str | None = None, reason: str | None = None
) -> Lifecycle:
    queue = topic.queue
    first = queue.holder(runs[0]) if queue is not None else None
    number = None
    if queue is not None and first is not None and _share_lease(queue, runs):
        number, node = lease_id(first.number), node or first.node
    return Lifecycle(kind, topic.name, ts_ms, runs, node, number, _deliveries(queue, runs), reason=reason)


def _share_lease(queue: Queue, runs: list[int]) -> bool:
    return _is_one(runs) or len(set(map(queue.in_flight.get, each(runs)))) == 1


def _is_one(runs: list[int]) -> bool:
    """Return whether the runs are one job, as most are: rows come by the thousand."""
    return len(runs) == 2 and runs[1] == 1


def _deliveries(queue: Queue | None, runs: list[int], *, plus: int = 0) -> int | None:
    """Return the delivery count that all these jobs share, or None."""
    if queue is None:
        return None
    if not queue.deliveries:
        return 1
    if _is_one(runs):
        return queue.deliveries.get(runs[0], 1 - plus) + plus
    counts = {queue.deliveries.get(seq, 1 - plus) for seq in each(runs)}
    return counts.pop() + plus if len(counts) == 1 else None


def _name(state: State, topic_id: int) -> str | None:
    topic = state.by_id.get(topic_id)
    return topic.name if topic is not None else None
