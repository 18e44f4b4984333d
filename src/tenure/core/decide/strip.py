"""The strip of a queue: the jobs at both ends, the next one in line, parked jobs, leases, and counts of the rest.

The cost follows what is shown, not the length of the queue.
"""

from __future__ import annotations

from itertools import islice

from tenure.contract.commands import Strip
from tenure.contract.records import lease_id
from tenure.contract.replies import JobRow, QueueStrip, StripLease
from tenure.contract.replies.topics import config_info
from tenure.contract.values import check_whole
from tenure.core.decide.decision import Payloads, Steps
from tenure.core.decide.evict import evict_over_ttl
from tenure.core.decide.jobs import describe, state_of
from tenure.core.decide.topics import queue_info
from tenure.core.level import Level
from tenure.core.paging import clamp_limit
from tenure.core.ready_jobs import next_ready
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["strip"]

_WINDOW = 256
_SEQS_SHOWN = 16
"""How many seqs of one lease are named; its other jobs are counted."""
_PARKED_SHOWN = 24
"""How many parked jobs are named, those that were parked first; the others are counted."""
_SEQS_MAX = 20_000
"""How many seqs are looked at for one end: where more parked jobs lie there, fewer jobs are shown."""


def strip(state: State, command: Strip, now_ms: int, payloads: Payloads) -> Steps[tuple[QueueStrip, int]]:
    """Describe a queue: ``head`` and ``tail`` jobs at its ends, ascending by seq, and its oldest ``leases``.

    Parked jobs are listed apart. ``next`` is the job that is next in line, at either end or between, or None.
    Where ``head`` reaches the end, the tail is empty. ``next_at`` is when time alone changes something next, or None.
    """
    topic, queue = state.queue(command.topic)
    head, leases = clamp_limit(command.head, state.settings), clamp_limit(command.leases, state.settings)
    tail = min(check_whole(command.tail, "tail"), state.settings.page_max)
    yield from evict_over_ttl(state, topic, now_ms, payloads)
    first, reached = _first(topic, queue, head)
    last = _last(topic, queue, tail, above=reached)
    upcoming = next_ready(topic, queue)
    offset_ms = state.wall_offset_ms
    reply = QueueStrip(
        topic=topic.name,
        now=now_ms + offset_ms,
        next_at=queue.next_change_ms + offset_ms if queue.next_change_ms != NEVER else None,
        head_seq=topic.head_seq,
        count=topic.count,
        config=config_info(topic.config),
        queue=queue_info(state, topic, queue, now_ms),
        head=_describe_all(queue, first, offset_ms),
        tail=_describe_all(queue, last, offset_ms),
        next=_describe_all(queue, [upcoming], offset_ms)[0] if upcoming is not None else None,
        parked=_describe_all(queue, list(islice(queue.parked, _PARKED_SHOWN)), offset_ms),
        leases=_describe_leases(queue, queue.leases.numbers_after(0, leases), offset_ms),
        leases_count=queue.leases.count,
    )
    return reply, Level.NOW


def _first(topic: Topic, queue: Queue, wanted: int) -> tuple[list[int], int]:
    """Return the lowest live seqs that are not parked, and the seq up to which there are no others.

    The window grows, so that a long stretch of the dead costs few steps.
    """
    found: list[int] = []
    looked, lo, size = 0, topic.floor, _WINDOW
    while lo <= topic.head_seq:
        for seq in each(topic.live_runs(lo, lo + size)):
            looked += 1
            if seq not in queue.parked:
                found.append(seq)
            if len(found) == wanted or looked == _SEQS_MAX:
                return found, seq
        lo, size = lo + size, size * 2
    return found, topic.head_seq


def _last(topic: Topic, queue: Queue, wanted: int, *, above: int) -> list[int]:
    """Return the highest live seqs above one that are not parked, ascending."""
    found: list[int] = []
    looked, hi, size = 0, topic.head_seq + 1, _WINDOW
    while len(found) < wanted and hi > above + 1 and looked < _SEQS_MAX:
        lo = max(hi - size, above + 1)
        live = list(each(topic.live_runs(lo, hi)))
        looked += len(live)
        found = [seq for seq in live if seq not in queue.parked] + found
        hi, size = lo, size * 2
    return found[-wanted:] if wanted else []


def _describe_all(queue: Queue, seqs: list[int], offset_ms: int) -> list[JobRow]:
    states = {seq: state_of(queue, seq) for seq in seqs}
    delayed = {seq for seq, state in states.items() if state == "delayed"}
    dues_ms = queue.delays.due_times_ms(delayed, offset_ms) if delayed else {}
    return [describe(queue, seq, state, dues_ms.get(seq), wall_offset_ms=offset_ms) for seq, state in states.items()]


def _describe_leases(queue: Queue, numbers: list[int], offset_ms: int) -> list[StripLease]:
    """Describe each lease: how many jobs it still holds, and the first of them."""
    return [
        StripLease(
            lease_id=lease_id(number),
            node=lease.node,
            since=lease.since_ms + offset_ms,
            deadline=lease.deadline_ms + offset_ms,
            held=queue.held_count(number),
            seqs=list(islice(queue.each_held(number), _SEQS_SHOWN)),
        )
        for number in numbers
        if (lease := queue.lease(number)) is not None
    ]
