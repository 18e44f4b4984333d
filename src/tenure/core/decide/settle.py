"""Decide ack, nack and extend: commands of a worker about the jobs that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenure.contract import replies
from tenure.contract.commands import Ack, Extend, Nack, OfHolder
from tenure.contract.config import LEASE_MS_MAX, LEASE_MS_MIN
from tenure.contract.names import check_node, check_reason, describe_value
from tenure.contract.records import parse_lease_id
from tenure.contract.values import SEQ_MAX, check_flag, check_seqs, check_whole
from tenure.core.backoff import delay_ms as backoff_ms
from tenure.core.decide.dead_letters import dead_letter, first_part
from tenure.core.decide.decision import Decided, Decision, Payloads, Steps
from tenure.core.events import Acked, Extended, Released
from tenure.core.level import LEVELS, Level, lease_level
from tenure.core.ready_jobs import ready_count
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, each, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Invalid, LeaseLost

__all__ = ["Holding", "ack", "check_and_select", "clamp_lease", "extend", "nack", "select_held", "settled_reply"]

Holding = tuple[list[int], list[int]]
"""The seqs that the caller holds under a live lease, and those that it does not."""


def select_held(
    topic: Topic,
    queue: Queue,
    node: str,
    seqs: Sequence[int] | None,
    lease_ids: Sequence[str] | None = None,
    lease: str | None = None,
    strict: bool = False,
) -> Holding:
    """Split seqs into those that ``node`` holds and those that it does not. The caller has let time pass.

    ``lease`` alone stands for everything still held under it; with ``seqs`` it fences them all; ``lease_ids`` fence
    one each. ``strict`` raises LeaseLost if a seq that is still alive is not the caller's; a seq already gone is only
    skipped.
    """
    if lease is None and lease_ids is None and seqs is not None and not strict:
        return _by_node(queue, node, seqs)
    number = parse_lease_id(lease) if lease is not None else None
    if seqs is None:
        assert number is not None, "the caller gives seqs or a lease"
        row = queue.leases.row_of(number)
        return (queue.held(number), []) if row is not None and queue.leases.node(row) == node else ([], [])
    if lease_ids is None and number is None:
        holding = _by_node(queue, node, seqs)
    else:
        fences = [number] * len(seqs) if lease_ids is None else _fences(lease_ids, len(seqs), number)
        holding = _by_lease(queue, node, seqs, fences)
    if strict:
        _check_strict(topic, holding[1])
    return holding


def _by_node(queue: Queue, node: str, seqs: Sequence[int]) -> Holding:
    in_flight, node_of = queue.in_flight, queue.leases.node
    rows = set(map(in_flight.get, seqs))
    mine = {row for row in rows if row is not None and node_of(row) == node}
    if len(mine) == len(rows):  # the usual case: a worker settles what it claimed
        return (list(seqs), [])
    held: list[int] = []
    skipped: list[int] = []
    for seq in seqs:
        (held if in_flight.get(seq) in mine else skipped).append(seq)
    return (held, skipped)


def _by_lease(queue: Queue, node: str, seqs: Sequence[int], fences: Sequence[int | None]) -> Holding:
    leases, row_of = queue.leases, queue.in_flight.get
    mine: dict[int | None, int] = {}
    for number in set(fences):
        row = None if number is None else leases.row_of(number)
        if row is not None and leases.node(row) == node:
            mine[number] = row
    if len(mine) == 1 and set(fences) == mine.keys() and set(map(row_of, seqs)) == set(mine.values()):
        return (list(seqs), [])  # the usual case: a worker settles what it claimed
    held: list[int] = []
    skipped: list[int] = []
    for seq, fence in zip(seqs, fences, strict=True):
        (held if fence in mine and row_of(seq) == mine[fence] else skipped).append(seq)
    return (held, skipped)


def _fences(lease_ids: Sequence[str], seq_count: int, number: int | None) -> list[int | None]:
    if not isinstance(lease_ids, (list, tuple)):
        raise Invalid(f"lease_ids must be a list of lease ids; got {describe_value(lease_ids)}")
    if len(lease_ids) != seq_count:
        raise Invalid(
            f"lease_ids has {len(lease_ids)} entries for {seq_count} seqs: give one per seq, in the same order"
        )
    fences = [parse_lease_id(value) for value in lease_ids]
    return [fence if number is None or fence == number else 0 for fence in fences]


def _check_strict(topic: Topic, skipped: list[int]) -> None:
    lost = [seq for seq in skipped if not topic.is_dead(seq)]
    if lost:
        raise LeaseLost(
            f"{len(lost)} of the seqs are not held by the caller any more: stop working on them; nothing was changed",
            skipped=lost,
        )


def ack(state: State, command: Ack, now_ms: int, payloads: Payloads) -> Decision[replies.Settled]:
    """Complete jobs, which deletes them. Jobs the caller does not hold are skipped; ``strict`` raises LeaseLost."""
    topic, queue = state.queue(command.topic)
    held, skipped = check_and_select(state, topic, queue, command)
    level = LEVELS[topic.config.durability]
    if not held:  # of a job that is done it waits as the ack that did it, perhaps a first copy of this one
        is_done = any(seq <= topic.head_seq and topic.is_dead(seq) for seq in skipped)
        return None, settled_reply(topic, queue, 0, skipped), level if is_done else Level.NOW
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    done = runs[1] if len(runs) == 2 else count(runs)
    event = Acked(now_ms, topic.id, runs, payloads.weigh(topic, runs), command.node)
    return event, settled_reply(topic, queue, done, skipped), level


def nack(state: State, command: Nack, now_ms: int, payloads: Payloads) -> Decided[replies.Settled]:
    """Give jobs back, now or after ``delay_ms`` (default: the queue's back-off); ``dead`` dead-letters them at once."""
    if command.delay_ms is not None:
        check_whole(command.delay_ms, "delay_ms")
    if command.reason is not None:
        check_reason(command.reason, bytes_max=state.settings.reason_bytes_max)
    if command.dead is not False:
        check_flag(command.dead, "dead")
    topic, queue = state.queue(command.topic)
    held, skipped = check_and_select(state, topic, queue, command)
    if not held:
        return None, settled_reply(topic, queue, 0, skipped), Level.NOW
    if command.dead:
        return _reject(state, topic, queue, held, skipped, reason=command.reason, now_ms=now_ms, payloads=payloads)
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    event = _release_event(state, topic, queue, runs, command, now_ms)
    done = runs[1] if len(runs) == 2 else count(runs)
    back = done if event.due_ms <= now_ms else 0
    if event.dues_ms is not None:
        back = sum(due_ms <= now_ms for due_ms in event.dues_ms)
    return event, settled_reply(topic, queue, done, skipped, back), lease_level(topic.config)


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
    """Dead-letter held jobs, as many at a time as one batch of the log holds. Other commands may run in between: what
    is not held under the same lease any more is skipped.
    """
    leases = {seq: queue.leases.number(queue.in_flight[seq]) for seq in held}
    level, done, left = Level.NOW, 0, sorted(leases)
    while left:
        part = first_part(state, topic, left, payloads)
        level = max(level, (yield from dead_letter(state, topic, part, now_ms, payloads, reason=reason or "rejected")))
        done, rest = done + len(part), left[len(part) :]
        left = [seq for seq in rest if _holder(state, topic, seq) == leases[seq]]
        skipped = [*skipped, *sorted(set(rest).difference(left))]
    return replies.Settled(topic.name, done, skipped, ready_count(topic, queue), len(queue.in_flight)), level


def _holder(state: State, topic: Topic, seq: int) -> int:
    """Return the number of the lease that a job is held under, 0 where it is held under none."""
    queue = topic.queue if state.by_id.get(topic.id) is topic else None
    row = None if queue is None else queue.in_flight.get(seq)
    return 0 if queue is None or row is None else queue.leases.number(row)


def _release_event(state: State, topic: Topic, queue: Queue, runs: list[int], command: Nack, now_ms: int) -> Released:
    dues_ms, due_ms = None, now_ms + min(command.delay_ms or 0, state.settings.delay_ms_max)
    backoff = topic.config.retry_backoff
    if command.delay_ms is None and backoff is not None:
        dues_ms = [now_ms + backoff_ms(backoff, deliveries=queue.tries(seq), seq=seq) for seq in each(runs)]
    return Released(now_ms, topic.id, runs, command.node, due_ms, dues_ms, command.reason)


def extend(state: State, command: Extend, now_ms: int, payloads: Payloads) -> Decision[replies.Extended]:
    """Set the deadline of held jobs to now plus ``lease_ms``; it may be left out where a lease is named."""
    topic, queue = state.queue(command.topic)
    lease_ms = command.lease_ms
    if lease_ms is None:
        if command.lease_id is None:
            raise Invalid("lease_ms is required: how long from now do you need the jobs?")
        lease_ms = topic.config.lease_ms
    deadline_ms = now_ms + clamp_lease(lease_ms)
    held, skipped = check_and_select(state, topic, queue, command)
    if not held:
        return None, replies.Extended(topic.name, {}, skipped), Level.NOW
    runs = [held[0], 1] if len(held) == 1 else to_runs(held)
    deadlines = dict.fromkeys(each(runs), deadline_ms + state.wall_offset_ms)
    event = Extended(now_ms, topic.id, runs, deadline_ms, command.node)
    return event, replies.Extended(topic.name, deadlines, skipped), lease_level(topic.config)


def clamp_lease(lease_ms: int) -> int:
    """Return the duration of a lease, clamped to what the contract allows."""
    return min(max(check_whole(lease_ms, "lease_ms"), LEASE_MS_MIN), LEASE_MS_MAX)


def check_and_select(state: State, topic: Topic, queue: Queue, command: OfHolder[Any]) -> Holding:
    """Check the fields that all commands of a holder have, and select what the caller holds."""
    node, seqs, lease_id, lease_ids = check_node(command.node), command.seqs, command.lease_id, command.lease_ids
    if lease_id is None and lease_ids is None and seqs.__class__ is list and len(seqs) == 1:
        seq = seqs[0]
        if seq.__class__ is int and 0 <= seq <= SEQ_MAX and command.strict is False:  # most name one job, and no more
            row = queue.in_flight.get(seq)
            return ([seq], []) if row is not None and queue.leases.node(row) == node else ([], [seq])
    if command.strict is not False:
        check_flag(command.strict, "strict")
    if seqs is not None:
        check_seqs(seqs, count_max=state.settings.claim_max, limit="claim_max")
    elif lease_id is None:
        raise Invalid("name the jobs: give seqs, or the lease_id of a claim")
    elif lease_ids is not None:
        raise Invalid("lease_ids go with seqs, one each: give seqs too, or only the lease_id")
    return select_held(topic, queue, node, seqs, lease_ids, lease_id, command.strict)


def settled_reply(topic: Topic, queue: Queue, done: int, skipped: list[int], back: int = 0) -> replies.Settled:
    """Return the reply for ``done`` settled jobs, ``back`` of which can be claimed again."""
    return replies.Settled(topic.name, done, skipped, ready_count(topic, queue) + back, len(queue.in_flight) - done)
