"""``invariants(state)``: assertions about a folded state that hold at every moment.

Tests call it after every step, an operator's tool may call it on what a log folds to. It looks at everything and costs
accordingly; no request runs it.
"""

from __future__ import annotations

from itertools import pairwise

from tenure.core.state import deliveries as limits
from tenure.core.state.deliveries import weight_bytes
from tenure.core.state.frame_index import SegmentIndex
from tenure.core.state.lease import Lease
from tenure.core.state.queue import NEVER, Queue
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["invariants"]

_LOW = (1 << 64) - 1


def invariants(state: State) -> None:
    """Raise AssertionError with a sentence where the state contradicts itself."""
    assert not state.orphans, f"topics {sorted(state.orphans)} have frames but no base"
    names = {topic.name: topic for topic in state.by_id.values()}
    assert names == state.topics, "topics by name and by id are not the same"
    assert all(topic_id == topic.id < state.next_topic_id for topic_id, topic in state.by_id.items()), (
        "a topic has an id that is still to be given out"
    )
    weight = sum(topic.bytes for topic in state.by_id.values())
    assert state.live_bytes == weight, f"live_bytes is {state.live_bytes}, the topics weigh {weight}"
    jobs = sum(topic.count for topic in state.by_id.values() if topic.queue is not None)
    assert state.jobs == jobs, f"{state.jobs} jobs are counted, the queues hold {jobs}"
    keys = sum(len(topic.keys) for topic in state.by_id.values() if topic.keys is not None)
    assert state.idempotency_keys == keys, f"{state.idempotency_keys} keys are counted, the topics hold {keys}"
    keyed = {topic for topic in state.by_id.values() if topic.keys is not None}
    assert set(state.keyed) == keyed, "the topics with idempotency keys are not all listed"
    assert state.wall_queues <= state.by_id.keys(), "a queue that waits for the wall clock is gone"
    assert not state.retired & state.topics.keys(), "a name is retired and has a topic"
    _check_routers(state)
    for topic in state.by_id.values():
        try:
            _check_topic(state, topic)
        except AssertionError as error:
            raise AssertionError(f"topic {topic.name!r}: {error}") from error


def _check_routers(state: State) -> None:
    assert all(name == router.name for name, router in state.routers.items()), "a router is kept under another name"
    indexed = [router for routers in state.routers_from.values() for router in routers]
    assert sorted(map(id, indexed)) == sorted(map(id, state.routers.values())), "the routers by source are not all"
    assert all(router.source == source for source, routers in state.routers_from.items() for router in routers), (
        "a router is listed under another source"
    )


def _check_topic(state: State, topic: Topic) -> None:
    floor, head, dead = topic.floor, topic.head_seq, topic.dead
    assert 1 <= floor <= head + 1, f"the floor {floor} lies outside 1..{head + 1}"
    if dead is not None:
        assert floor < dead.min() <= dead.max() <= head, "the dead reach outside what lies between floor and head"
        assert len(dead) < head + 1 - floor, "everything is dead, but the floor has not followed"
    live = list(each(topic.live_runs(floor, head + 1)))
    assert topic.count == len(live), f"count is {topic.count}, {len(live)} seqs are alive"
    assert not live or live[0] == floor, f"the floor {floor} is not the first live seq, which is {live[0]}"
    assert live or floor == head + 1, f"nothing is alive, but the floor is {floor} and not {head + 1}"
    assert topic.bytes >= 0, "it weighs less than nothing"
    assert live or not topic.bytes, f"it is empty and weighs {topic.bytes}"
    assert max(topic.evict_floor - 1, topic.trim_seq) <= head, "a loss is marked above the head"
    assert topic.durable_seq <= head, f"durable_seq {topic.durable_seq} lies above the head {head}"
    assert topic.config.type == ("log" if topic.queue is None else "queue"), "its type and its state disagree"
    assert not (topic.implicit and topic.queue is not None), "a queue that no caller asked for"
    _check_frame_index(state, topic, live)
    if topic.queue is not None:
        _check_queue(state, topic, topic.queue, live)


def _check_frame_index(state: State, topic: Topic, live: list[int]) -> None:
    entries: list[SegmentIndex] = topic.frame_index
    assert all(entry.firsts for entry in entries), "the index of a segment holds no frame"
    firsts = [first for entry in entries for first in entry.firsts]
    assert all(a < b for a, b in pairwise(firsts)), f"frames are not ascending by seq: {firsts}"
    times_ms = [time_ms for entry in entries for time_ms in entry.times_ms]
    assert all(a <= b for a, b in pairwise(times_ms)), f"frames are not ascending by time: {times_ms}"
    assert not firsts or firsts[-1] <= topic.head_seq, "a frame starts above the head"
    assert not live or (firsts and firsts[0] <= live[0]), f"no frame answers for seq {live[:1]}"
    for segment in {topic.base, *(entry.segment for entry in entries)}:
        assert topic.id in state.holders.get(segment, ()), f"segment {segment} does not know that it is needed"


def _check_queue(state: State, topic: Topic, queue: Queue, live: list[int]) -> None:
    alive = set(live)
    places = {
        "in flight": set(queue.in_flight),
        "reclaim": set(queue.reclaim),
        "delayed": set(queue.delayed),
        "parked": set(queue.parked),
    }
    for name, seqs in places.items():
        assert seqs <= alive, f"{name} holds dead jobs: {sorted(seqs - alive)}"
    assert sum(map(len, places.values())) == len(set().union(*places.values())), f"a job is in two places: {places}"
    passed = {seq for seq in live if seq < queue.cursor}
    missing = passed - set().union(*places.values())
    assert not missing, f"jobs {sorted(missing)} lie below the cursor and nowhere else"
    early = {seq for seq in (*queue.in_flight, *queue.reclaim) if seq >= queue.cursor}
    assert not early, f"jobs {sorted(early)} were claimed, but lie at or above the cursor {queue.cursor}"
    assert queue.cursor <= topic.head_seq + 1, f"the cursor {queue.cursor} lies above the head {topic.head_seq}"
    assert topic.is_dead(queue.acked_max), f"seq {queue.acked_max} was acked and is alive"
    for name, known in (("deliveries", queue.deliveries), ("deliveries_ended", queue.deliveries_ended)):
        assert known.keys() <= alive, f"{name} remembers dead jobs: {sorted(known.keys() - alive)}"
    assert all(count >= 1 for count in queue.deliveries.values()), "a job is counted as delivered less than once"
    _check_deliveries_ended(queue)
    assert queue.copies.keys() <= queue.parked.keys(), "a job that is not parked has a copy among the dead letters"
    assert queue.uniques == {key: seq for seq, key in queue.uniques_by_seq.items()}, "unique keys are not one to one"
    assert queue.uniques_by_seq.keys() <= alive, "a unique key outlives its job"
    _check_leases(queue)
    _check_waiting(state, topic, queue)


def _check_deliveries_ended(queue: Queue) -> None:
    rows = list(queue.deliveries_ended.values())
    assert len(rows) <= limits.ENDED_JOBS_MAX, "too many jobs keep their failed deliveries"
    assert all(1 <= len(row) <= limits.ENDED_PER_JOB_MAX for row in rows), "a job keeps none or too many deliveries"
    weight = sum(map(weight_bytes, rows))
    assert queue.deliveries_ended.size_bytes == weight, (
        f"{queue.deliveries_ended.size_bytes} bytes are counted of {weight}"
    )
    assert weight <= limits.ENDED_BYTES_MAX or len(rows) == 1, "failed deliveries weigh more than they may"


def _check_leases(queue: Queue) -> None:
    parts: dict[Lease, list[int]] = {}
    for seq, part in queue.in_flight.items():
        parts.setdefault(part, []).append(seq)
    apart = dict.fromkeys(queue.leases, 0)
    for part, seqs in parts.items():
        _check_part(queue, part, seqs)
        apart[part.number] += len(seqs) if part.first is not None else 0
    assert queue.parts == len(parts), f"{queue.parts} parts of leases are counted, {len(parts)} hold jobs"
    for number, first in queue.leases.items():
        assert (first.number, first.first) == (number, None), f"lease {number:#x} is not the part it started as"
        assert first.apart == apart[number], f"lease {number:#x} counts {first.apart} jobs apart of {apart[number]}"
        assert first.left + first.apart, f"lease {number:#x} is over and still known"
    claims = {first.claim_id: number for number, first in queue.leases.items() if first.claim_id is not None}
    assert claims == queue.claims, f"claim ids are {queue.claims}, the leases say {claims}"
    index = queue.leases_by_deadline
    assert sorted(index.deadlines_ms) == sorted(index.parts), "deadlines and the parts by deadline differ"
    entries = sum(map(len, index.parts.values()))
    assert index.count == entries, f"{index.count} deadlines are counted of {entries}"


def _check_part(queue: Queue, part: Lease, seqs: list[int]) -> None:
    number, first = part.number, queue.leases.get(part.number)
    assert first is (part.first or part), f"a job is held by lease {number:#x}, which is over"
    assert part.left == len(seqs), f"lease {number:#x} counts {part.left} jobs and holds {sorted(seqs)}"
    assert set(seqs) <= set(each(part.runs)) <= set(each(first.runs)), f"lease {number:#x} holds more than its runs"
    assert part.node == first.node, f"parts of lease {number:#x} do not fit together"
    assert part.indexed_ms <= part.deadline_ms, f"lease {number:#x} is indexed too late"
    assert part in queue.leases_by_deadline.parts.get(part.indexed_ms, ()), (
        f"the deadline of lease {number:#x} is not indexed"
    )


def _check_waiting(state: State, topic: Topic, queue: Queue) -> None:
    delays, deadlines_ms = queue.delays, queue.leases_by_deadline.deadlines_ms
    heap = deadlines_ms
    assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap))), "the heap of deadlines is out of order"
    assert queue.delayed is delays.jobs, "delayed is not the set of delays"
    entries = [entry & _LOW for entry in (*delays.by_log, *delays.by_wall)]
    assert sorted(entries) == list(queue.delayed), f"delayed are {list(queue.delayed)}, entries {sorted(entries)}"
    dues_ms = {e & _LOW: e >> 64 for e in delays.by_wall}
    dues_ms |= {e & _LOW: (e >> 64) + state.wall_offset_ms for e in delays.by_log}
    assert delays.due_times_ms(set(entries), state.wall_offset_ms) == dues_ms, "a delayed job is not found by its seq"
    for order in (delays.by_log, delays.by_wall):
        assert list(order) == sorted(order), "delays are out of order"
        assert len(order) == len(list(order)), "delays are counted wrongly"
    waits = bool(delays.by_wall)
    assert waits == (topic.id in state.wall_queues), "wall_queues does not say whether it waits for the wall clock"
    first_ms = min(
        min((deadline_ms + 1 for deadline_ms in deadlines_ms), default=NEVER),
        min((entry >> 64 for entry in delays.by_log), default=NEVER),
        min(((entry >> 64) - state.wall_offset_ms for entry in delays.by_wall), default=NEVER),
    )
    assert queue.next_change_ms <= first_ms, (
        f"something ends at {first_ms}, but nothing is planned before {queue.next_change_ms}"
    )
