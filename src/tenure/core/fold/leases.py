"""Fold leases: claimed, acked, released, extended, dead-lettered, redriven; begun, returned, lost."""

from __future__ import annotations

from typing import Final

from tenure.core.events import (
    Acked,
    Begun,
    Claimed,
    ClaimedIsolated,
    DeadLettered,
    Extended,
    Lost,
    Redriven,
    Released,
    Returned,
)
from tenure.core.fold.removal import lighten, remove
from tenure.core.state.deliveries import Delivery
from tenure.core.state.lease import Lease
from tenure.core.state.lease_table import EPOCH_SHIFT
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each
from tenure.core.state.state import State

__all__ = [
    "acked",
    "begun",
    "claimed",
    "claimed_isolated",
    "copies_of",
    "dead_lettered",
    "extended",
    "lost",
    "redriven",
    "released",
    "returned",
]

_BORROWERS_MAX: Final = 1_000
"""How many groups may be noted as holders of a suspect before those that hold none any more are forgotten."""


def claimed(state: State, event: Claimed, location: int) -> None:
    state.leases_given = event.lease & (1 << EPOCH_SHIFT) - 1
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    if event.at_ms >= topic.queue.next_change_ms:
        state.pass_time(topic, event.at_ms)
    topic.queue.hold(event)


def claimed_isolated(state: State, event: ClaimedIsolated, location: int) -> None:
    state.leases_given = event.lease & (1 << EPOCH_SHIFT) - 1
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    queue = topic.queue
    if event.at_ms >= queue.next_change_ms:
        state.pass_time(topic, event.at_ms)
    if queue.suspects.ready:
        _note_taken(queue, event)
    queue.hold(event, event.group)


def _note_taken(queue: Queue, event: ClaimedIsolated) -> None:
    """Note that suspects were taken by a claim for them, or which of them another claim of the group took."""
    line = queue.suspects
    if event.only_suspects:
        line.since_ms = event.at_ms
        return
    taken = next((seq for seq in each(event.runs) if seq in line.ready), None)
    if taken is not None:
        if len(line.borrowed) >= _BORROWERS_MAX:
            line.borrowed = {group: seq for group, seq in line.borrowed.items() if queue.is_borrowed(group)}
        line.borrowed[event.group] = taken


def begun(state: State, event: Begun, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    state.pass_time(topic, event.at_ms)
    begun = topic.queue.suspects.begun
    for seq in each(event.runs):
        begun.pop(seq, None)
        if not event.is_over:
            begun[seq] = event.at_ms, event.retry_ms
    state.begun_queues.add(topic.id)


def returned(state: State, event: Returned, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    queue = topic.queue
    state.pass_time(topic, event.at_ms)
    for seq in each(event.runs):
        _end_delivery(queue, seq, event.at_ms, "returned", event.reason)
        queue.suspects.spare(seq)
        queue.make_ready_at(seq, event.due_ms, now_ms=event.at_ms)
    topic.evict_from = min(topic.evict_from, event.runs[0])


def lost(state: State, event: Lost, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    queue = topic.queue
    state.pass_time(topic, event.at_ms)
    reason = None if event.exit_code is None else f"exit code {event.exit_code}"
    state.lost += count(event.runs)
    for seq in each(event.runs):
        due_ms = event.at_ms + queue.lose(seq)
        _end_delivery(queue, seq, event.at_ms, "lost", reason)
        queue.make_ready_at(seq, due_ms, now_ms=event.at_ms)
    topic.evict_from = min(topic.evict_from, event.runs[0])


def _end_delivery(queue: Queue, seq: int, until_ms: int, end: str, reason: str | None) -> Lease:
    """End the delivery of a held job, and note how."""
    lease = queue.let_go(seq)
    assert lease is not None, "only held jobs are released"
    queue.record_delivery(seq, Delivery(lease.number, lease.node, lease.since_ms, until_ms, end, reason))
    return lease


def acked(state: State, event: Acked, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    queue = topic.queue
    if event.at_ms >= queue.next_change_ms:
        state.pass_time(topic, event.at_ms)
    jobs = beyond = 0
    numbers = iter(event.runs)
    for lo, n in zip(numbers, numbers, strict=True):
        jobs += n
        beyond = lo + n
        queue.take_out(lo, n)
        topic.bury(lo, beyond)
    topic.count -= jobs
    state.jobs -= jobs
    if queue.deliveries or queue.uniques_by_seq or queue.deliveries_ended or queue.suspects.pasts.jobs:
        for seq in each(event.runs):
            queue.forget_details(seq)
    if topic.tags is not None:
        topic.tags.sweep(2 * jobs)
    if beyond > queue.acked_max:
        queue.acked_max = beyond - 1
    lighten(state, topic, event.bytes)


def released(state: State, event: Released, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    state.pass_time(topic, event.at_ms)
    dues_ms = iter(event.dues_ms) if event.dues_ms is not None else None
    for seq in each(event.runs):
        isolates = topic.queue.leases.group(topic.queue.in_flight[seq]) is not None
        _end_delivery(topic.queue, seq, event.at_ms, event.cause, event.reason)
        if event.cause == "nack":
            topic.queue.suspects.clear(seq)
        elif isolates:  # its holder never got it, or the log was restored elsewhere
            topic.queue.suspects.spare(seq)
        due_ms = next(dues_ms) if dues_ms is not None else event.due_ms
        topic.queue.make_ready_at(seq, due_ms, now_ms=event.at_ms)
    topic.evict_from = min(topic.evict_from, event.runs[0])


def extended(state: State, event: Extended, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    state.pass_time(topic, event.at_ms)
    topic.queue.extend(event.runs, deadline_ms=event.deadline_ms)


def dead_lettered(state: State, event: DeadLettered, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    state.pass_time(topic, event.at_ms)
    jobs = count(event.runs)
    topic.queue.dead_lettered += jobs
    if event.action in ("move", "drop"):
        remove(state, topic, event.runs, records=jobs, size=event.bytes)
        return
    for seq in each(event.runs):
        lease = topic.queue.let_go(seq)
        if lease is not None:
            delivery = Delivery(lease.number, lease.node, lease.since_ms, event.at_ms, "dead", event.reason)
            topic.queue.record_delivery(seq, delivery)
            topic.queue.suspects.clear(seq)
        topic.queue.park(seq, event.reason)
    topic.queue.copies.update(copies_of(event))


def copies_of(event: DeadLettered) -> dict[int, int]:
    """Return the dead letter of each job that is parked with a copy, as ``Queue.copies`` names it; empty without."""
    if event.action != "copy":
        return {}
    return {seq: event.dest << 64 | event.dest_seq + index for index, seq in enumerate(each(event.runs))}


def redriven(state: State, event: Redriven, location: int) -> None:
    topic = state.by_id.get(event.topic)
    if topic is None:
        return
    state.pass_time(topic, event.at_ms)
    if event.dest:
        remove(state, topic, event.runs, records=count(event.runs), size=event.bytes)
        return
    assert topic.queue is not None, "only a queue parks jobs"
    for seq in each(event.runs):
        topic.queue.unpark(seq)
        if event.reset_deliveries:
            topic.queue.forget_deliveries(seq)
        topic.queue.make_ready_at(seq, 0, now_ms=event.at_ms)
    topic.evict_from = min(topic.evict_from, event.runs[0])
