"""List and describe the jobs and the leases of a queue; nothing changes."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import merge
from itertools import islice

from msgspec import Raw
from msgspec.structs import asdict

from tenure.contract.commands import GetJob, ListJobs, ListLeases
from tenure.contract.names import describe_value
from tenure.contract.records import lease_id
from tenure.contract.replies import Delivery, JobInfo, JobRow, LeaseRow, Page
from tenure.contract.values import check_whole
from tenure.core.decide.decision import Decision, Payloads
from tenure.core.level import Level
from tenure.core.paging import after_number, clamp_limit, cursor_of
from tenure.core.ready_jobs import fresh_from
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each, first_absent
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Invalid, NotFound

__all__ = ["describe", "get_job", "list_jobs", "list_leases", "state_of"]

_STATES = ("ready", "suspect", "in_flight", "delayed", "parked")
_LOOKS_MAX = 20_000
"""How many seqs a listing looks at: where so many others lie between, a page has fewer jobs and a cursor."""


def list_jobs(state: State, command: ListJobs, now_ms: int, payloads: Payloads) -> Decision[Page[JobRow]]:
    """List jobs in one state, ascending by seq, from the one after ``cursor`` on."""
    topic, queue = state.queue(command.topic)
    if command.state not in _STATES:
        raise Invalid(f"state must be one of {', '.join(_STATES)}")
    limit, after = clamp_limit(command.limit, state.settings), after_number(command.cursor)
    seqs, reached = _in_state(topic, queue, command.state, after, limit)
    offset_ms = state.wall_offset_ms
    dues_ms = queue.delays.due_times_ms(set(seqs), offset_ms) if command.state == "delayed" else {}
    items = [describe(queue, seq, command.state, dues_ms.get(seq), wall_offset_ms=offset_ms) for seq in seqs]
    return None, Page(items, cursor_of(reached) if reached is not None else None), Level.NOW


def _in_state(topic: Topic, queue: Queue, state: str, cursor: int, limit: int) -> tuple[list[int], int | None]:
    """Return the next jobs in a state, and the last seq that was looked at where there may be others after it."""
    match state:
        case "in_flight":
            return _among(topic, queue.in_flight, cursor, limit)
        case "parked":
            return _among(topic, queue.parked, cursor, limit)
        case "delayed":
            found = list(islice(queue.delayed.iter_equal_or_larger(cursor + 1), limit + 1))
        case "suspect":
            found = list(islice(queue.suspects.ready.iter_equal_or_larger(cursor + 1), limit + 1))
        case _:
            waiting = merge(*(jobs.iter_equal_or_larger(cursor + 1) for jobs in (queue.reclaim, queue.suspects.ready)))
            found = list(islice(waiting, limit + 1))
            start = max(queue.cursor, topic.floor, cursor + 1)
            found += each(fresh_from(topic, queue, start, limit + 1 - len(found)))
            found.sort()
    return found[:limit], found[limit - 1] if len(found) > limit else None


def _among(topic: Topic, jobs: Mapping[int, object], cursor: int, limit: int) -> tuple[list[int], int | None]:
    """Return the next of some jobs. Few are sorted; among many the seqs are looked through, up to a limit."""
    if len(jobs) <= _LOOKS_MAX:
        found = sorted(seq for seq in jobs if seq > cursor)
        return found[:limit], found[limit - 1] if len(found) > limit else None
    lo = max(cursor + 1, topic.floor)
    lo = first_absent(topic.dead, lo) if topic.dead else lo
    hi = min(lo + _LOOKS_MAX, topic.head_seq + 1)
    found = list(islice((seq for seq in range(lo, hi) if seq in jobs), limit))
    reached = found[-1] if len(found) == limit else hi - 1
    return found, reached if reached < topic.head_seq else None


def describe(queue: Queue, seq: int, state: str, due_ms: int | None = None, *, wall_offset_ms: int) -> JobRow:
    """Return a job as listings show it: its state, its holder and deadline, and why it last came back."""
    reason = queue.parked.get(seq) or queue.deliveries_ended.last_reason(seq)
    lease, past = queue.holder(seq), queue.suspects.pasts.get(seq)
    tries = queue.tries(seq) if past.spared else None
    if lease is None:
        count = queue.deliveries.get(seq, 0)
        return JobRow(seq, state, count, deliver_at=due_ms, reason=reason, tries=tries, lost=past.lost)
    return JobRow(
        seq,
        state,
        queue.deliveries.get(seq, 1),
        node=lease.node,
        lease_id=lease_id(lease.number),
        since=lease.since_ms + wall_offset_ms,
        deadline=lease.deadline_ms + wall_offset_ms,
        deliver_at=due_ms,
        reason=reason,
        tries=tries,
        lost=past.lost,
    )


def get_job(state: State, command: GetJob, now_ms: int, payloads: Payloads) -> Decision[JobInfo]:
    """Return one job: its record, its state, and its deliveries that ended without an ack."""
    topic, queue = state.queue(command.topic)
    seq = check_whole(command.seq, "seq")
    if topic.is_dead(seq) or seq > topic.visible_seq:
        raise NotFound(f"no job {describe_value(seq)} in {topic.name!r}: it was never there, or it is done", seq=seq)
    offset_ms, standing = state.wall_offset_ms, state_of(queue, seq)
    dues_ms = queue.delays.due_times_ms({seq}, offset_ms) if standing == "delayed" else {}
    row = describe(queue, seq, standing, dues_ms.get(seq), wall_offset_ms=offset_ms)
    history = [
        Delivery(lease_id(d.lease), d.node, d.since_ms + offset_ms, d.until_ms + offset_ms, d.end, d.reason)
        for d in queue.deliveries_ended.get(seq, ())
    ]
    record = payloads.records(topic, [seq, 1])[0]
    job = JobInfo(
        topic=topic.name,
        ts=record.ts,
        producer=record.node,
        tag=record.tag,
        data=Raw(record.data),
        meta=None if record.meta is None else Raw(record.meta),
        history=history,
        **asdict(row),
    )
    return None, job, Level.NOW


def state_of(queue: Queue, seq: int) -> str:
    """Return the state of a live job: in_flight, parked, delayed or ready."""
    if seq in queue.in_flight:
        return "in_flight"
    if seq in queue.parked:
        return "parked"
    return "delayed" if seq in queue.delayed else "ready"


def list_leases(state: State, command: ListLeases, now_ms: int, payloads: Payloads) -> Decision[Page[LeaseRow]]:
    """List live leases by number: node, jobs, start, and the earliest deadline of their jobs."""
    _, queue = state.queue(command.topic)
    limit, after = clamp_limit(command.limit, state.settings), after_number(command.cursor)
    numbers, offset_ms = queue.leases.numbers_after(after, limit + 1), state.wall_offset_ms
    items = [
        LeaseRow(
            lease_id(number), lease.node, lease.since_ms + offset_ms, lease.deadline_ms + offset_ms, queue.held(number)
        )
        for number in numbers[:limit]
        if (lease := queue.lease(number)) is not None
    ]
    return None, Page(items, cursor_of(numbers[limit - 1]) if len(numbers) > limit else None), Level.NOW
