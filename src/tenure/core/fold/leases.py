"""Fold leases: claimed, acked, released, extended, dead-lettered, redriven."""

from __future__ import annotations

from tenure.core.events import Acked, Claimed, DeadLettered, Extended, Redriven, Released
from tenure.core.fold.removal import lighten, remove
from tenure.core.state.deliveries import Delivery
from tenure.core.state.ranges import count, each
from tenure.core.state.state import State

__all__ = ["acked", "claimed", "copies_of", "dead_lettered", "extended", "redriven", "released"]


def claimed(state: State, event: Claimed, location: int) -> None:
    state.leases_given = event.lease & (1 << 40) - 1
    topic = state.by_id.get(event.topic)
    if topic is None or topic.queue is None:
        return
    if event.at_ms >= topic.queue.next_change_ms:
        state.pass_time(topic, event.at_ms)
    topic.queue.hold(event)


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
    if queue.deliveries or queue.uniques_by_seq or queue.deliveries_ended:
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
        lease = topic.queue.let_go(seq)
        assert lease is not None, "only held jobs are released"
        delivery = Delivery(lease.number, lease.node, lease.since_ms, event.at_ms, event.cause, event.reason)
        topic.queue.record_delivery(seq, delivery)
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
            topic.queue.deliveries.pop(seq, None)
        topic.queue.make_ready_at(seq, 0, now_ms=event.at_ms)
    topic.evict_from = min(topic.evict_from, event.runs[0])
