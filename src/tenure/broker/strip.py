"""Both ends of a queue as somebody looks at it: the jobs at the head and at the tail, the next one in line, the parked
ones aside, who holds what, and the counts of all the rest.

The cost follows what is shown, not the length of the queue.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_ttl
from tenure.broker.paging import clamp_limit
from tenure.broker.reads import describe, due_times, state_of
from tenure.broker.topics import queue_info
from tenure.contract.leases import lease_id
from tenure.core.claim import next_ready
from tenure.core.config import as_dict
from tenure.core.lease import Lease
from tenure.core.queue import NEVER, Queue
from tenure.core.ranges import each
from tenure.core.topic import Topic
from tenure.core.values import check_whole

__all__ = ["strip"]

_WINDOW = 256
_SEQS_SHOWN = 16
"""How many seqs of one lease are named; its other jobs are counted."""
_PARKED_SHOWN = 24
"""How many parked jobs are named, those that were parked first; the others are counted."""
_SEQS_MAX = 20_000
"""How many seqs are looked at for one end: where more parked jobs lie there, fewer jobs are shown."""


def strip(engine: Engine, name: str, *, head: int = 100, tail: int = 20, leases: int = 50) -> dict[str, Any]:
    """A queue as it stands: ``head`` and ``tail`` jobs at its ends, ascending by seq, and its oldest ``leases``.

    Parked jobs stand in no line and are shown apart. ``next`` is the job that is next in line, or None, wherever it
    lies. Where ``head`` reaches the end, the tail is empty. ``next_at`` is when time alone changes something next, or
    None.
    """
    topic, queue = engine.state.queue(name)
    head, leases = clamp_limit(head, engine.settings), clamp_limit(leases, engine.settings)
    tail = min(check_whole(tail, "tail"), engine.settings.page_max)
    now = engine.now()
    engine.pass_time(topic, now)
    evict_over_ttl(engine, topic, now)
    first, reached = _first(topic, queue, head)
    last = _last(topic, queue, tail, above=reached)
    upcoming = next_ready(topic, queue)
    offset = engine.state.wall_offset_ms
    return {
        "topic": name,
        "now": now + offset,
        "next_at": queue.next_at + offset if queue.next_at != NEVER else None,
        "head_seq": topic.head_seq,
        "count": topic.count,
        "config": as_dict(topic.config),
        "queue": queue_info(engine, topic, queue, now + offset),
        "head": _described(engine, queue, first),
        "tail": _described(engine, queue, last),
        "next": _described(engine, queue, [upcoming])[0] if upcoming is not None else None,
        "parked": _described(engine, queue, list(islice(queue.parked, _PARKED_SHOWN))),
        "leases": [_lease(queue, lease, offset) for lease in islice(queue.leases.values(), leases)],
        "leases_count": len(queue.leases),
    }


def _first(topic: Topic, queue: Queue, wanted: int) -> tuple[list[int], int]:
    """The lowest live seqs that are not parked, and the seq up to which there are no others.

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
    """The highest live seqs above one that are not parked, ascending."""
    found: list[int] = []
    looked, hi, size = 0, topic.head_seq + 1, _WINDOW
    while len(found) < wanted and hi > above + 1 and looked < _SEQS_MAX:
        lo = max(hi - size, above + 1)
        live = list(each(topic.live_runs(lo, hi)))
        looked += len(live)
        found = [seq for seq in live if seq not in queue.parked] + found
        hi, size = lo, size * 2
    return found[-wanted:] if wanted else []


def _described(engine: Engine, queue: Queue, seqs: list[int]) -> list[dict[str, Any]]:
    states = {seq: state_of(queue, seq) for seq in seqs}
    delayed = {seq for seq, state in states.items() if state == "delayed"}
    dues = due_times(queue, delayed, engine.state.wall_offset_ms) if delayed else {}
    return [describe(engine, queue, seq, state, dues.get(seq)) for seq, state in states.items()]


def _lease(queue: Queue, lease: Lease, offset: int) -> dict[str, Any]:
    """One lease: how many jobs it still holds, and the first of them. Parts that were extended apart count together."""
    return {
        "lease_id": lease_id(lease.number),
        "node": lease.node,
        "since": lease.since + offset,
        "deadline": queue.deadline(lease.number) + offset,
        "held": queue.held_count(lease.number),
        "seqs": list(islice(queue.each_held(lease.number), _SEQS_SHOWN)),
    }
