"""Decide claims: lease jobs to a worker; dead-letter poisoned jobs and park unreadable ones on the way."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from tenure.contract.commands import Claim
from tenure.contract.names import check_key, check_node
from tenure.contract.records import Stored
from tenure.contract.replies import Grant
from tenure.contract.values import check_flag, check_whole
from tenure.core.decide.dead_letters import dead_letter, park_events, worn_reason
from tenure.core.decide.decision import Behind, Decided, Decision, Payloads, Steps
from tenure.core.decide.evict import evict_over_ttl
from tenure.core.decide.settle import clamp_lease
from tenure.core.events import Acked, Claimed, ClaimedIsolated, Event
from tenure.core.level import LEVELS, Level, lease_level
from tenure.core.ready_jobs import LETTERS_MAX, choose, ready_count
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.core.suspects import choose_for, isolates
from tenure.errors import Corrupt, Invalid, Overloaded
from tenure.settings import Settings

__all__ = ["check_claim", "check_isolation", "claim", "clamp_claim"]


def claim(state: State, command: Claim, now_ms: int, payloads: Payloads) -> Decided[Grant]:
    """Lease up to ``max_count`` jobs to ``node``, as many as an answer of ``claim_bytes_max`` can carry.

    An empty claim is a reply, not an error. Raises Overloaded at a cap.
    """
    topic, queue = state.queue(command.topic)
    check_node(command.node)
    if command.auto_ack is not False:
        check_flag(command.auto_ack, "auto_ack")
    if command.isolate is not False or command.suspects is not False or command.group is not None:
        check_isolation(command)
    max_count = command.max_count
    if max_count.__class__ is not int or max_count != 1:
        max_count = clamp_claim(max_count, state.settings)
    lease_ms = topic.config.lease_ms if command.lease_ms is None else clamp_lease(command.lease_ms)
    if command.claim_id is not None:
        check_key(command.claim_id, field="claim_id", bytes_max=state.settings.key_bytes_max)
        number = queue.claims.get(command.claim_id)
        if number is not None:
            return _repeat(state, topic, queue, command, number, payloads)
    if topic.config.ttl_ms or queue.suspects.ready or command.suspects:
        return _in_steps(state, topic, queue, command, now_ms, payloads, max_count=max_count, lease_ms=lease_ms)
    runs, poisoned = choose(topic, queue, max_count)
    if poisoned:
        return _in_steps(state, topic, queue, command, now_ms, payloads, max_count=max_count, lease_ms=lease_ms)
    if not runs:
        return None, _empty(state, topic, queue, command), Level.NOW
    if max_count > 1:
        runs = payloads.fitting(topic, runs, state.settings.claim_bytes_max)
    try:
        jobs = payloads.records(topic, runs)
    except Corrupt:
        return _in_steps(state, topic, queue, command, now_ms, payloads, max_count=max_count, lease_ms=lease_ms)
    return _lease(state, topic, command, runs, jobs, now_ms, payloads, lease_ms)


def check_claim(command: Claim, settings: Settings) -> None:
    """Raise Invalid now for a claim that waits in line and would be refused at its turn."""
    check_node(command.node)
    check_whole(command.max_count, "max")
    if command.lease_ms is not None:
        check_whole(command.lease_ms, "lease_ms")
    if command.claim_id is not None:
        check_key(command.claim_id, field="claim_id", bytes_max=settings.key_bytes_max)
    check_flag(command.auto_ack, "auto_ack")
    check_isolation(command)


def check_isolation(command: Claim) -> None:
    """Raise Invalid for what a claim cannot ask for about isolation."""
    if command.isolate is not True:
        check_flag(command.isolate, "isolate")
    if command.group is not None:
        check_node(command.group)
    if command.suspects is not False and check_flag(command.suspects, "suspects") and not command.isolate:
        raise Invalid("suspects needs isolate: a worker that takes them may be lost with them", field="suspects")


def clamp_claim(max_count: int, settings: Settings) -> int:
    """Return how many jobs a claim may take: 0 acts as 1, more than the limit is the limit."""
    return min(check_whole(max_count, "max"), settings.claim_max) or 1


def _lease(
    state: State,
    topic: Topic,
    command: Claim,
    runs: list[int],
    jobs: list[Stored],
    now_ms: int,
    payloads: Payloads,
    lease_ms: int,
) -> Decision[Grant]:
    """Lease these jobs. The reply has the delivery count of each, this one included, and how many are ready then."""
    queue, config, node, deadline_ms = topic.queue, topic.config, command.node, now_ms + lease_ms
    assert queue is not None
    number, counts, ready = state.next_lease, queue.deliveries, ready_count(topic, queue) - len(jobs)
    redelivered = {seq: counts[seq] + 1 for seq in each(runs) if seq in counts} if counts else {}
    if ready < 0:
        ready = 0
    claimed: Claimed
    if command.isolate and isolates(state, command):
        group = command.group or node
        claimed = ClaimedIsolated(
            now_ms, topic.id, number, node, deadline_ms, runs, command.claim_id, group, command.suspects
        )
    else:
        claimed = Claimed(now_ms, topic.id, number, node, deadline_ms, runs, command.claim_id)
    if command.auto_ack:
        acked = Acked(now_ms, topic.id, runs, payloads.weigh(topic, runs), node)
        return [claimed, acked], Grant(topic.name, node, 0, 0, jobs, redelivered, ready), LEVELS[config.durability]
    shown_ms = deadline_ms + state.wall_offset_ms
    grant = Grant(topic.name, node, number, shown_ms, jobs, redelivered, ready, lease_ms)
    if queue.suspects.pasts.jobs:
        grant = _with_pasts(grant, state, queue, command, runs, delivered=1)
    return claimed, grant, lease_level(config)


def _with_pasts(
    grant: Grant, state: State, queue: Queue, command: Claim, runs: list[int], *, delivered: int = 0
) -> Grant:
    """Add what is known of jobs that were returned or lost before; ``delivered`` counts a delivery that is not folded
    yet.
    """
    pasts, tries, lost = queue.suspects.pasts, dict[int, int](), dict[int, int]()
    waiting = len(queue.suspects.ready)
    for seq in each(runs):
        past = pasts.get(seq)
        waiting -= delivered and seq in queue.suspects.ready
        if past.spared:
            tries[seq] = queue.deliveries.get(seq, 1) + delivered - past.spared
        if past.lost:
            lost[seq] = past.lost
    return replace(grant, tries=tries, lost=lost, suspects=waiting if isolates(state, command) else 0)


def _empty(state: State, topic: Topic, queue: Queue, command: Claim) -> Grant:
    suspects = len(queue.suspects.ready) if queue.suspects.ready and isolates(state, command) else 0
    return Grant(topic.name, command.node, 0, 0, [], {}, ready_count(topic, queue), suspects=suspects)


def _in_steps(
    state: State,
    topic: Topic,
    queue: Queue,
    command: Claim,
    now_ms: int,
    payloads: Payloads,
    *,
    max_count: int,
    lease_ms: int,
) -> Steps[tuple[Grant, int] | Behind]:
    """Claim where records may have to leave the queue first: by age, by too many deliveries, or by damage."""
    if not (yield from evict_over_ttl(state, topic, now_ms, payloads)):
        return Behind(topic)
    runs, jobs, buried_level = yield from _take(state, topic, queue, command, max_count, now_ms, payloads)
    if not runs:
        return _empty(state, topic, queue, command), buried_level
    leased = _lease(state, topic, command, runs, jobs, now_ms, payloads, lease_ms)
    events, reply, level = leased
    assert events is not None
    yield [events] if isinstance(events, Event) else events
    return reply, max(level, buried_level)


def _take(
    state: State, topic: Topic, queue: Queue, command: Claim, max_count: int, now_ms: int, payloads: Payloads
) -> Steps[tuple[list[int], list[Stored], int]]:
    """Choose jobs and read them; dead-letter poisoned ones, park worn and unreadable ones on the way.

    The last part of the result is the level that the reply waits for because of those.
    """
    level, buried = Level.NOW, 0
    settings = state.settings
    runs, poisoned, worn = choose_for(state, topic, queue, command, max_count, now_ms=now_ms)
    if poisoned:  # as many as one step copies: the next pass goes on
        poisoned = list(each(payloads.fitting(topic, to_runs(poisoned), settings.step_bytes_max)))
        level = yield from dead_letter(state, topic, poisoned, now_ms, payloads)
    if worn:
        level = max(level, Level.WRITTEN)
        yield park_events(topic, {seq: worn_reason(queue, seq) for seq in worn}, now_ms)
    if poisoned or worn:
        runs = _choose_again(state, topic, queue, command, max_count, now_ms=now_ms)
    while runs:
        runs = payloads.fitting(topic, runs, settings.claim_bytes_max)
        jobs, lost = payloads.readable(topic, runs)
        if not lost:
            return runs, jobs, level
        yield park_events(topic, {seq: f"unreadable: {error.message}" for seq, error in lost.items()}, now_ms)
        level, buried = max(level, Level.WRITTEN), buried + count(runs) - len(jobs)
        if jobs:
            return to_runs(job.seq for job in jobs), jobs, level
        if buried >= LETTERS_MAX:
            break  # the pass after this one goes on after the damage
        runs = _choose_again(state, topic, queue, command, max_count, now_ms=now_ms)
    return [], [], level


def _choose_again(
    state: State, topic: Topic, queue: Queue, command: Claim, max_count: int, *, now_ms: int
) -> list[int]:
    """Choose after jobs left the queue; none at a cap, because the next claim will meet the cap and raise."""
    with suppress(Overloaded):
        return choose_for(state, topic, queue, command, max_count, now_ms=now_ms).runs
    return []


def _repeat(
    state: State, topic: Topic, queue: Queue, command: Claim, number: int, payloads: Payloads
) -> Decision[Grant]:
    """Reply to a repeated claim, whose first reply was lost: the same jobs and lease, and no delivery counted.

    Where its jobs have several deadlines by now, the reply has the earliest.
    """
    lease, node = queue.lease(number), command.node
    assert lease is not None
    if lease.node != node:
        raise Invalid(f"this claim_id belongs to another node ({lease.node!r}): use a fresh one")
    held = queue.held(number)
    jobs, _ = payloads.readable(topic, to_runs(held))  # one that cannot be read runs out, and is parked then
    if not jobs:
        return None, _empty(state, topic, queue, command), Level.NOW
    redelivered = {seq: queue.deliveries[seq] for seq in held if seq in queue.deliveries}
    deadline_ms = lease.deadline_ms + state.wall_offset_ms
    reply = Grant(topic.name, node, number, deadline_ms, jobs, redelivered, ready_count(topic, queue))
    if queue.suspects.pasts.jobs:
        reply = _with_pasts(reply, state, queue, command, to_runs(held))
    return None, reply, lease_level(topic.config)
