"""Leases of claims that wait for their reply, or whose connection is gone: keep them, extend them, give them back."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tenure.contract.replies import Grant
from tenure.core.decide.decision import Decision
from tenure.core.events import Event, Extended, Released
from tenure.core.level import Level
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["give_back", "keep_held", "release", "shift_deadline"]


def release(state: State, topic: Topic, numbers: Sequence[int], now_ms: int) -> Decision[None]:
    """Give back everything still held under these leases: their connection is gone. Time has passed on the topic."""
    queue = topic.queue
    if queue is None or state.by_id.get(topic.id) is not topic:
        return None, None, Level.NOW
    events: list[Event] = []
    for number in dict.fromkeys(numbers):
        lease = queue.lease(number)
        if lease is not None:
            runs = to_runs(queue.held(number))
            events.append(Released(now_ms, topic.id, runs, lease.node, now_ms, None, None, "disconnect"))
    return events or None, None, Level.NOW


def give_back(state: State, grant: Grant, now_ms: int) -> Decision[None]:
    """Give back a claim whose caller went away before it was answered.

    A claim with a ``claim_id`` stays leased: its caller can ask for it again, and no delivery is counted for that.
    """
    found = _queue_of(state, grant)
    lease = found[1].lease(grant.lease) if found is not None else None
    if found is None or lease is None or lease.claim_id is not None:
        return None, None, Level.NOW
    return release(state, found[0], [grant.lease], now_ms)


def keep_held(state: State, grant: Grant, now_ms: int) -> Grant:
    """Return the claim with the jobs still held under its lease; empty and without a lease where none is.

    Time has passed on the queue, as far as a step goes: a job whose deadline has passed is not held any more, though
    its lease may not have ended yet.
    """
    found = _queue_of(state, grant)
    held: set[int] = set()
    if found is not None:
        _, queue = found
        row = queue.leases.row_of(grant.lease)
        if row is not None:
            held = {seq for seq, deadline_ms in queue.deadlines_of(row) if deadline_ms >= now_ms}
    if len(held) == len(grant.jobs):
        return grant
    jobs = [job for job in grant.jobs if job.seq in held]
    return replace(grant, jobs=jobs) if jobs else Grant(grant.topic, grant.node, 0, 0, [], {}, grant.ready)


def shift_deadline(state: State, grant: Grant, now_ms: int, *, lease_ms: int) -> Decision[int]:
    """Extend a lease whose claim waits for its sync to ``lease_ms`` from now; the reply is the new deadline in log
    time, or 0 where nothing is held any more. Time has passed on the queue.
    """
    found = _queue_of(state, grant)
    if found is None:
        return None, 0, Level.NOW
    topic, queue = found
    held = queue.held(grant.lease)
    if not held:
        return None, 0, Level.NOW
    deadline_ms = now_ms + lease_ms
    event = Extended(now_ms, topic.id, to_runs(held), deadline_ms, grant.node, "sync")
    return event, deadline_ms, Level.SYNCED


def _queue_of(state: State, grant: Grant) -> tuple[Topic, Queue] | None:
    """Return the queue of a claim; None where it was deleted."""
    topic = state.topics.get(grant.topic)
    return None if topic is None or topic.queue is None else (topic, topic.queue)
