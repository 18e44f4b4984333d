"""Ack, nack, extend: a worker says what becomes of the jobs it holds."""

from __future__ import annotations

from typing import Any

from tenure.contract import replies
from tenure.contract.commands import Ack, Extend, Nack, OfHolder
from tenure.core.backoff import delay_ms as backoff_ms
from tenure.core.claim import ready_count
from tenure.core.config import LEASE_MS_MAX, LEASE_MS_MIN
from tenure.core.decide.dead_letters import dead_letter
from tenure.core.decide.decision import Decided, Decision, Payloads, Steps
from tenure.core.events import Acked, Extended, Released
from tenure.core.level import LEVELS, Level, lease_level
from tenure.core.names import check_node, check_reason
from tenure.core.queue import Queue
from tenure.core.ranges import count, each, to_runs
from tenure.core.settle import Holding, sift
from tenure.core.state import State
from tenure.core.topic import Topic
from tenure.core.values import SEQ_MAX, check_flag, check_seqs, check_whole
from tenure.errors import Invalid

__all__ = ["ack", "clamp_lease", "extend", "nack"]


def ack(state: State, command: Ack, now_ms: int, payloads: Payloads) -> Decision[replies.Settled]:
    """Complete jobs, which deletes them. What the caller does not hold is skipped; ``strict`` makes that LeaseLost."""
    topic, queue = state.queue(command.topic)
    held, skipped = _holding(state, topic, queue, command, now_ms)
    if not held:
        return None, _settled(topic, queue, 0, skipped), Level.NOW
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    done = runs[1] if len(runs) == 2 else count(runs)
    event = Acked(now_ms, topic.id, runs, payloads.weigh(topic, runs), command.node)
    return event, _settled(topic, queue, done, skipped), LEVELS[topic.config.durability]


def nack(state: State, command: Nack, now_ms: int, payloads: Payloads) -> Decided[replies.Settled]:
    """Give jobs back, now or after ``delay_ms`` (default: the queue's back-off); ``dead`` dead-letters them at once."""
    if command.delay_ms is not None:
        check_whole(command.delay_ms, "delay_ms")
    if command.reason is not None:
        check_reason(command.reason, bytes_max=state.settings.reason_bytes_max)
    if command.dead is not False:
        check_flag(command.dead, "dead")
    topic, queue = state.queue(command.topic)
    held, skipped = _holding(state, topic, queue, command, now_ms)
    if not held:
        return None, _settled(topic, queue, 0, skipped), Level.NOW
    if command.dead:
        return _reject(state, topic, queue, held, skipped, reason=command.reason, now_ms=now_ms, payloads=payloads)
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    event = _released(state, topic, queue, runs, command, now_ms)
    done = runs[1] if len(runs) == 2 else count(runs)
    back = done if event.due <= now_ms else 0
    if event.dues is not None:
        back = sum(due <= now_ms for due in event.dues)
    return event, _settled(topic, queue, done, skipped, back), lease_level(topic.config)


def _reject(
    state: State,
    topic: Topic,
    queue: Queue,
    held: list[int],
    skipped: list[int],
    *,
    reason: str | None,
    now_ms: int,
    payloads: Payloads,
) -> Steps[tuple[replies.Settled, int]]:
    done = len(set(held))
    level = yield from dead_letter(state, topic, held, now_ms, payloads, reason=reason or "rejected")
    return replies.Settled(topic.name, done, skipped, ready_count(topic, queue), len(queue.in_flight)), level


def _released(state: State, topic: Topic, queue: Queue, runs: list[int], command: Nack, now_ms: int) -> Released:
    dues, due = None, now_ms + min(command.delay_ms or 0, state.settings.delay_ms_max)
    backoff = topic.config.retry_backoff
    if command.delay_ms is None and backoff is not None:
        counts = queue.deliveries
        dues = [now_ms + backoff_ms(backoff, deliveries=counts.get(seq, 1), seq=seq) for seq in each(runs)]
    return Released(now_ms, topic.id, runs, command.node, due, dues, command.reason)


def extend(state: State, command: Extend, now_ms: int, payloads: Payloads) -> Decision[replies.Extended]:
    """Set the deadline of held jobs to now plus ``lease_ms``; it may be left out where a lease is named."""
    topic, queue = state.queue(command.topic)
    lease_ms = command.lease_ms
    if lease_ms is None:
        if command.lease_id is None:
            raise Invalid("lease_ms is required: how long from now do you need the jobs?")
        lease_ms = topic.config.lease_ms
    deadline_ms = now_ms + clamp_lease(lease_ms)
    held, skipped = _holding(state, topic, queue, command, now_ms)
    if not held:
        return None, replies.Extended(topic.name, {}, skipped), Level.NOW
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    deadlines = dict.fromkeys(each(runs), deadline_ms + state.wall_offset_ms)
    event = Extended(now_ms, topic.id, runs, deadline_ms, command.node)
    return event, replies.Extended(topic.name, deadlines, skipped), lease_level(topic.config)


def clamp_lease(lease_ms: int) -> int:
    """Return a lease's duration, held within what the contract allows."""
    return min(max(check_whole(lease_ms, "lease_ms"), LEASE_MS_MIN), LEASE_MS_MAX)


def _holding(state: State, topic: Topic, queue: Queue, command: OfHolder[Any], now_ms: int) -> Holding:
    """Check what acks, nacks and extends have in common, let time pass, and see what the caller holds."""
    node, seqs, lease_id, lease_ids = check_node(command.node), command.seqs, command.lease_id, command.lease_ids
    if lease_id is None and lease_ids is None and seqs.__class__ is list and len(seqs) == 1:
        seq = seqs[0]
        if seq.__class__ is int and 0 <= seq <= SEQ_MAX and command.strict is False:  # most name one job, and no more
            if now_ms >= queue.next_at:
                state.pass_time(topic, now_ms)
            lease = queue.in_flight.get(seq)
            return ([seq], []) if lease is not None and lease.node == node else ([], [seq])
    if command.strict is not False:
        check_flag(command.strict, "strict")
    if seqs is not None:
        check_seqs(seqs, count_max=state.settings.claim_max, limit="claim_max")
    elif lease_id is None:
        raise Invalid("name the jobs: give seqs, or the lease_id of a claim")
    elif lease_ids is not None:
        raise Invalid("lease_ids go with seqs, one each: give seqs too, or only the lease_id")
    if now_ms >= queue.next_at:
        state.pass_time(topic, now_ms)
    return sift(topic, queue, node, seqs, lease_ids, lease_id, command.strict)


def _settled(topic: Topic, queue: Queue, done: int, skipped: list[int], back: int = 0) -> replies.Settled:
    """Return the reply once ``done`` of the held jobs are settled and ``back`` of them can be claimed again."""
    return replies.Settled(topic.name, done, skipped, ready_count(topic, queue) + back, len(queue.in_flight) - done)
