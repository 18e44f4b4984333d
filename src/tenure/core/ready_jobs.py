"""Choose the jobs of a claim: work that came back first, then fresh, ascending by seq; count what is ready."""

from __future__ import annotations

from itertools import islice

from tenure.contract.config import SYNCED
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each, first_absent, to_runs
from tenure.core.state.topic import Topic
from tenure.errors import Overloaded

__all__ = [
    "LETTERS_MAX",
    "ack_holes",
    "choose",
    "claimable_count",
    "fresh_from",
    "next_ready",
    "ready_count",
    "room_in_flight",
    "tries_max",
]

_NONE: list[int] = []
LETTERS_MAX = 1_000
"""How many jobs one pass dead-letters at most."""
_HOPS_MAX = 32
"""How many stretches of dead and of delayed jobs are passed over one by one; after that they are joined."""


def ready_count(topic: Topic, queue: Queue) -> int:
    """Return how many jobs could be claimed right now. The caller has let time pass."""
    waiting = topic.count - len(queue.in_flight) - len(queue.delayed) - len(queue.parked)
    if topic.config.durability in SYNCED and topic.durable_seq < topic.head_seq:
        lo, hi = max(topic.durable_seq + 1, topic.floor), topic.head_seq + 1
        waiting -= hi - lo - topic.dead_between(lo, hi) - queue.delayed.range_cardinality(lo, hi)
    return waiting if waiting > 0 else 0


def next_ready(topic: Topic, queue: Queue) -> int | None:
    """Return the seq that is next in line, or None where no job is ready. The caller has let time pass."""
    if queue.reclaim:
        return int(queue.reclaim.min())
    fresh = _fresh(topic, queue, 1)
    if fresh:
        return fresh[0]
    return int(queue.suspects.ready.min()) if queue.suspects.ready else None


def claimable_count(topic: Topic, queue: Queue) -> int:
    """Return how many of the ready jobs the in-flight cap lets through."""
    ready, in_flight_max = ready_count(topic, queue), topic.config.max_in_flight
    return min(ready, max(in_flight_max - len(queue.in_flight), 0)) if in_flight_max else ready


def choose(topic: Topic, queue: Queue, max_count: int) -> tuple[list[int], list[int]]:
    """Pick up to ``max_count`` claimable jobs: runs to lease, and poisoned seqs that must be dead-lettered first.

    Raises Overloaded where a cap of the queue forbids handing out any.
    """
    config = topic.config
    if not (queue.reclaim or config.max_in_flight or config.max_ack_holes or queue.redelivered_max >= queue.cursor):
        return _fresh(topic, queue, max_count), []
    if config.max_in_flight:
        max_count = min(max_count, room_in_flight(queue, config.max_in_flight))
    seqs, poisoned = _returned(topic, queue, max_count)
    wanted = max_count - len(seqs)
    runs = to_runs(seqs) if seqs else []
    if wanted:
        if config.max_ack_holes and ack_holes(topic, queue) > config.max_ack_holes:
            if not seqs and not poisoned:
                _refuse_fresh(topic, queue)
            return runs, poisoned
        fresh = _fresh(topic, queue, wanted)
        if queue.redelivered_max >= queue.cursor:
            fresh, spent = _sort_out(topic, queue, fresh)
            poisoned += spent
        if runs and fresh and runs[-2] + runs[-1] == fresh[0]:
            runs[-1] += fresh.pop(1)
            del fresh[0]
        runs += fresh
    return runs, poisoned


def room_in_flight(queue: Queue, in_flight_max: int) -> int:
    """Return how many more jobs may be in flight. Raises Overloaded where none may."""
    room = in_flight_max - len(queue.in_flight)
    if room <= 0:
        raise Overloaded(
            f"{len(queue.in_flight)} jobs are in flight and {in_flight_max} are allowed: ack some first",
            code="in_flight_cap_exceeded",
            limit="max_in_flight",
            max=in_flight_max,
        )
    return room


def _refuse_fresh(topic: Topic, queue: Queue) -> None:
    if topic.visible_seq < queue.cursor:
        return  # nothing fresh is there to refuse
    raise Overloaded(
        f"more than {topic.config.max_ack_holes} holes are open below seq {queue.acked_max}: ack those jobs first",
        code="ack_hole_cap_exceeded",
        limit="max_ack_holes",
        max=topic.config.max_ack_holes,
    )


def _returned(topic: Topic, queue: Queue, wanted: int) -> tuple[list[int], list[int]]:
    limit = tries_max(topic)
    if not limit:
        return list(islice(queue.reclaim, wanted)), []
    seqs: list[int] = []
    poisoned: list[int] = []
    for seq in queue.reclaim:
        if queue.deliveries.get(seq, 0) < limit or queue.tries(seq) < limit:
            seqs.append(seq)
        else:
            poisoned.append(seq)
        if len(seqs) == wanted or len(poisoned) == LETTERS_MAX:
            break
    return seqs, poisoned


def tries_max(topic: Topic) -> int:
    """Return how often a job may be tried before it is dead-lettered; 0 where it never is."""
    config = topic.config
    return 0 if config.dlq_strategy == "skip" and config.dead_letter is None else config.max_deliveries


def _sort_out(topic: Topic, queue: Queue, runs: list[int]) -> tuple[list[int], list[int]]:
    """Split fresh jobs, some of which were delivered in another queue before: those to lease, and the poisoned ones.

    The lease ends before the first poisoned job, because the cursor must not pass over it.
    """
    limit, counts = tries_max(topic), queue.deliveries
    spent = [seq for seq in each(runs) if seq in counts and counts[seq] >= limit <= queue.tries(seq)] if limit else []
    return to_runs(seq for seq in each(runs) if seq < spent[0]) if spent else runs, spent


def _fresh(topic: Topic, queue: Queue, wanted: int) -> list[int]:
    lo, floor = queue.cursor, topic.floor
    last = topic.durable_seq if topic.config.durability in SYNCED else topic.head_seq
    if floor > lo:
        lo = floor
    if last < lo:
        return []
    if topic.dead or queue.delayed or queue.parked or queue.suspects.ahead:
        return fresh_from(topic, queue, lo, wanted)
    return [lo, min(wanted, last + 1 - lo)]


def fresh_from(topic: Topic, queue: Queue, seq: int, wanted: int) -> list[int]:
    """Return fresh seqs from ``seq`` on, which is not below the cursor, as runs; dead, delayed and parked ones are
    skipped, run by run.

    Where dead and delayed jobs take turns, both are joined in one bitmap: about a microsecond for every 65,536 seqs.
    """
    last, runs, hops = topic.visible_seq, list[int](), 0
    dead, delayed, parked, ahead = topic.dead, queue.delayed, queue.parked, queue.suspects.ahead
    while wanted and seq <= last:
        if dead and seq in dead:
            seq, hops = first_absent(dead, seq), hops + 1
        elif seq in delayed:
            seq, hops = first_absent(delayed, seq), hops + 1
            if hops > _HOPS_MAX and dead:
                dead, hops = dead | delayed, 0
        elif seq in parked or seq in ahead:
            seq += 1
        else:
            n = min(wanted, last + 1 - seq)
            while n > 1 and not _clear(topic, queue, seq, seq + n):
                n //= 2
            if runs and runs[-2] + runs[-1] == seq:
                runs[-1] += n
            else:
                runs += (seq, n)
            seq, wanted = seq + n, wanted - n
    return runs


def _clear(topic: Topic, queue: Queue, lo: int, hi: int) -> bool:
    taken = (queue.delayed, queue.suspects.ahead)
    if topic.dead_between(lo, hi) or any(jobs.range_cardinality(lo, hi) for jobs in taken):
        return False
    return not queue.parked or not any(seq in queue.parked for seq in range(lo, hi))


def ack_holes(topic: Topic, queue: Queue) -> int:
    """Return how many maximal runs of unacked seqs lie below the highest acked one, parked and delayed jobs aside, and
    suspects that wait: a worker that gets no fresh work for their sake could not take them instead.

    They are counted on the bitmaps, at the cost of their compressed size: about a microsecond for every 65,536 seqs.
    """
    lo, hi = topic.floor, queue.acked_max
    if lo > hi or not topic.dead:
        return 0
    settled = topic.dead | queue.delayed
    if queue.parked:
        settled.update(queue.parked)
    if queue.suspects.ready:
        settled |= queue.suspects.ready
    settled.remove_range(hi + 1, (1 << 63))
    settled.add_range(lo - 1, lo)
    # A hole starts after every settled seq (or the edge of the floor) whose follower is not settled; the highest acked
    # seq ends the last one.
    return len(settled) - settled.intersection_cardinality(settled.shift(-1)) - 1
