"""``invariants(state)``: assertions about a folded state that hold at every moment.

Tests call it after every step, an operator's tool may call it on what a log folds to. It looks at everything and costs
accordingly; no request runs it.
"""

from __future__ import annotations

from itertools import pairwise

from tenure.core.state import deliveries as limits
from tenure.core.state.deliveries import weight_bytes
from tenure.core.state.frame_index import SegmentIndex
from tenure.core.state.lease_page import NUMBER, PAGE_BITS, PAGE_MASK, LeasePage
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
    for lo, n in zip(topic.recreated[::2], topic.recreated[1::2], strict=True):
        assert not topic.live_runs(lo, lo + n), f"seqs {lo}..{lo + n - 1} were left out by a restore, and are alive"
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
        "suspects": set(queue.suspects.ready),
        "delayed": set(queue.delayed),
        "parked": set(queue.parked),
    }
    for name, seqs in places.items():
        assert seqs <= alive, f"{name} holds dead jobs: {sorted(seqs - alive)}"
    assert sum(map(len, places.values())) == len(set().union(*places.values())), f"a job is in two places: {places}"
    passed = {seq for seq in live if seq < queue.cursor}
    missing = passed - set().union(*places.values())
    assert not missing, f"jobs {sorted(missing)} lie below the cursor and nowhere else"
    ahead = queue.suspects.ahead
    early = {seq for seq in (*queue.in_flight, *queue.reclaim) if seq >= queue.cursor and seq not in ahead}
    assert not early, f"jobs {sorted(early)} were claimed, but lie at or above the cursor {queue.cursor}"
    assert queue.cursor <= topic.head_seq + 1, f"the cursor {queue.cursor} lies above the head {topic.head_seq}"
    assert topic.is_dead(queue.acked_max), f"seq {queue.acked_max} was acked and is alive"
    for name, known in (("deliveries", queue.deliveries), ("deliveries_ended", queue.deliveries_ended)):
        assert known.keys() <= alive, f"{name} remembers dead jobs: {sorted(known.keys() - alive)}"
    assert all(count >= 1 for count in queue.deliveries.values()), "a job is counted as delivered less than once"
    _check_deliveries_ended(queue)
    _check_suspects(queue, alive)
    assert queue.copies.keys() <= queue.parked.keys(), "a job that is not parked has a copy among the dead letters"
    assert queue.uniques == {key: seq for seq, key in queue.uniques_by_seq.items()}, "unique keys are not one to one"
    assert queue.uniques_by_seq.keys() <= alive, "a unique key outlives its job"
    _check_leases(queue)
    _check_waiting(state, topic, queue)


def _check_suspects(queue: Queue, alive: set[int]) -> None:
    line, pasts = queue.suspects, queue.suspects.pasts
    assert set(pasts) <= alive, f"dead jobs have a past: {sorted(set(pasts) - alive)}"
    for seq in pasts:
        past = pasts.get(seq)
        assert past.begun <= past.lost, f"job {seq} was lost more often while it was begun than at all: {past}"
        assert queue.tries(seq) >= 0, f"job {seq} has fewer deliveries than were spared: {past}"
    assert all(pasts.is_suspect(seq) for seq in line.ready), "a job waits with the suspects and is none"
    waiting = {*queue.reclaim, *(seq for seq in pasts if seq >= queue.cursor and seq not in line.ahead)}
    waiting -= queue.in_flight.keys() | queue.parked.keys() | set(queue.delayed)
    assert not any(pasts.is_suspect(seq) for seq in waiting), "a suspect is in line with the others"
    ahead = {seq for seq in (*line.ready, *queue.in_flight) if seq >= queue.cursor}
    assert set(line.ahead) == ahead, f"ahead of the cursor are {sorted(ahead)}, not {sorted(line.ahead)}"
    assert line.begun.keys() <= queue.in_flight.keys(), "a job is begun that no worker holds"


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
    table, own = queue.leases, queue.own_deadlines
    held: dict[int, list[int]] = {}
    for seq, row in queue.in_flight.items():
        held.setdefault(row, []).append(seq)
    for row, seqs in held.items():
        _check_lease(queue, row, seqs)
    apart = {row: n for row, seqs in held.items() if (n := sum(seq in own for seq in seqs))}
    assert table.apart == apart, f"jobs with a deadline of their own are counted as {table.apart}, they are {apart}"
    assert own.keys() <= queue.in_flight.keys(), "a job that is not in flight has a deadline"
    first_ms = {entry & _LOW: entry >> 128 for entry in sorted(own.heap, reverse=True)}
    assert all(first_ms.get(seq, NEVER) <= at_ms for seq, at_ms in own.items()), "a deadline is not indexed"
    living = [key << PAGE_BITS | page.offset(i) for key, page in table.pages.items() for i in _living(page)]
    assert living == sorted(held), f"rows {sorted(held)} hold jobs, {living} are known"
    assert {*table.runs, *table.claim_ids} <= set(living), "a lease that is over has runs or a claim id"
    numbers = [number for page in table.pages.values() for number in page.column(NUMBER)]
    assert all(a < b for a, b in pairwise(numbers)), "leases are not ascending by number"
    claims = {claim_id: _number(queue, row) for row, claim_id in table.claim_ids.items()}
    assert claims == queue.claims, f"claim ids are {queue.claims}, the leases say {claims}"


def _number(queue: Queue, row: int) -> int:
    return queue.leases.cells(row)[NUMBER]


def _living(page: LeasePage) -> list[int]:
    living = [i for i, left in enumerate(page.left) if left]
    assert page.living == len(living), f"{page.living} leases of a page are counted of {len(living)}"
    return living


def _check_lease(queue: Queue, row: int, seqs: list[int]) -> None:
    assert row >> PAGE_BITS in queue.leases.pages, f"jobs {sorted(seqs)} are held by a lease that is over"
    page, i = queue.leases.locate(row)
    number, _, deadline_ms, first = queue.leases.cells(row)
    assert page.left[i] == len(seqs), f"lease {number:#x} counts {page.left[i]} jobs and holds {sorted(seqs)}"
    runs = queue.leases.runs.get(row) or [first, 1]
    assert set(seqs) <= set(each(runs)), f"lease {number:#x} holds more than its runs"
    assert runs[0] == first, f"lease {number:#x} starts elsewhere than its runs"
    assert queue.leases.row_of(number) == row, f"lease {number:#x} is not found by its number"
    if any(seq not in queue.own_deadlines for seq in seqs):
        assert page.next_ms <= deadline_ms, f"the deadline of lease {number:#x} is not indexed"
        assert queue.leases.next_ms <= page.next_ms, f"the page of lease {number:#x} is not indexed"
        if page.due is not None:
            times_ms = [entry >> PAGE_BITS for entry in page.due if entry & PAGE_MASK == row & PAGE_MASK]
            assert min(times_ms, default=NEVER) <= deadline_ms, f"lease {number:#x} is not in line in its page"


def _check_waiting(state: State, topic: Topic, queue: Queue) -> None:
    delays, heap = queue.delays, queue.own_deadlines.heap
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
        min(
            (at_ms + 1 for row in set(queue.in_flight.values()) for _, at_ms in queue.deadlines_of(row)), default=NEVER
        ),
        min((entry >> 64 for entry in delays.by_log), default=NEVER),
        min(((entry >> 64) - state.wall_offset_ms for entry in delays.by_wall), default=NEVER),
    )
    assert queue.next_change_ms <= first_ms, (
        f"something ends at {first_ms}, but nothing is planned before {queue.next_change_ms}"
    )
