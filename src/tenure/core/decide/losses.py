"""Decide what is no try: jobs that are given back untried, suspects that are begun, and workers that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure.contract import replies
from tenure.contract.commands import Begin, EndNode, Return
from tenure.contract.names import check_node, check_reason
from tenure.contract.records import parse_lease_id
from tenure.contract.values import SEQ_MAX, check_seqs, check_whole, check_within
from tenure.core.decide.decision import Behind, Decision, Payloads, Steps, present, until_present
from tenure.core.decide.settle import check_and_select, settled_reply
from tenure.core.events import Begun, Event, Lost, Returned
from tenure.core.feature_off import feature_off
from tenure.core.level import Level, lease_level
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, LeaseLost

__all__ = ["begin", "end_node", "lose", "return_jobs"]

EXIT_CODE_MAX: Final = 2**31 - 1


def return_jobs(state: State, command: Return, now_ms: int, payloads: Payloads) -> Decision[replies.Settled]:
    """Give jobs back, now or after ``delay_ms``, and count the delivery as no try."""
    check_whole(command.delay_ms, "delay_ms")
    if command.reason is not None:
        check_reason(command.reason, bytes_max=state.settings.reason_bytes_max)
    _check_feature(state)
    topic, queue = state.queue(command.topic)
    held, skipped = check_and_select(state, topic, queue, command)
    if not held:
        return None, settled_reply(topic, queue, 0, skipped), Level.NOW
    runs, due_ms = to_runs(sorted(set(held))), now_ms + min(command.delay_ms, state.settings.delay_ms_max)
    done = count(runs)
    event = Returned(now_ms, topic.id, runs, command.node, due_ms, command.reason)
    back = done if due_ms <= now_ms else 0
    return event, settled_reply(topic, queue, done, skipped, back), lease_level(topic.config)


def begin(
    state: State, command: Begin, now_ms: int, payloads: Payloads
) -> Steps[tuple[replies.BegunJob, int] | Behind]:
    """Begin a job, so that a loss of its worker is a try of this job. A repeat changes nothing.

    Raises LeaseLost where the caller does not hold it under that lease, Conflict (``busy``) while the group has another
    job begun that has not yet run for `suspects_wait_ms`, and Conflict (``not_isolated``) where the lease does not
    isolate. A job that has run for longer is not blamed any more: a loss has the newest one as its cause.
    """
    check_node(command.node)
    seq, number = check_within(command.seq, "seq", least=0, most=SEQ_MAX), parse_lease_id(command.lease_id)
    _check_feature(state)
    topic, queue = state.queue(command.topic)
    row = queue.in_flight.get(seq)
    if row is None or queue.leases.number(row) != number or queue.leases.node(row) != command.node:
        raise LeaseLost(f"job {seq} is not held under that lease: do not run it", seq=seq)
    group = queue.leases.group(row)
    if group is None:
        raise Conflict(f"job {seq} was claimed without isolate: run it without a begin", code="not_isolated", seq=seq)
    reply = replies.BegunJob(topic.name, seq)
    if seq in queue.suspects.begun:
        return reply, Level.WRITTEN
    for other, _ in _with_begun(state):
        if not (yield from present(other, now_ms)):
            return Behind(other)
    events = _end_trials(state, group, now_ms)
    events.append(Begun(now_ms, topic.id, [seq, 1], command.node, _retry_ms(state, queue, seq)))
    yield events
    return reply, Level.WRITTEN


def _end_trials(state: State, group: str, now_ms: int) -> list[Event]:
    """Return the events that end the trials of the jobs that this group has begun, at the cost of all that are begun.

    Raises Conflict (``busy``) where one has only just begun.
    """
    events: list[Event] = []
    for topic, queue in _with_begun(state):
        for seq, (at_ms, _) in queue.suspects.begun.items():
            if queue.leases.group(queue.in_flight[seq]) != group:
                continue
            if now_ms - at_ms < state.settings.suspects_wait_ms:
                raise Conflict(
                    "this group of workers has only just begun another job, and a loss must have one cause: return "
                    "this one, and try again later",
                    code="busy",
                )
            node = queue.leases.node(queue.in_flight[seq])
            events.append(Begun(now_ms, topic.id, [seq, 1], node, 0, is_over=True))
    return events


def _with_begun(state: State) -> list[tuple[Topic, Queue]]:
    """Return the queues in which jobs are begun."""
    topics = [state.by_id[topic_id] for topic_id in state.begun_queues]
    return [(topic, queue) for topic in topics if (queue := topic.queue) is not None and queue.suspects.begun]


def _retry_ms(state: State, queue: Queue, seq: int) -> int:
    """Return after how long a job comes back if it is lost: twice as long each time, within the limit."""
    settings = state.settings
    return min(settings.begun_retry_ms << min(queue.suspects.pasts.get(seq).begun, 32), settings.begun_retry_ms_max)


def end_node(state: State, command: EndNode, now_ms: int, payloads: Payloads) -> Steps[tuple[replies.EndedNode, int]]:
    """End every lease of a process that has ended and that isolated: the jobs that it had begun are lost, the others
    are given back. In steps, because it may have held many.
    """
    check_node(command.node)
    if command.exit_code is not None:
        check_within(command.exit_code, "exit_code", least=-EXIT_CODE_MAX, most=EXIT_CODE_MAX)
    if command.seqs or not isinstance(command.seqs, (list, tuple, range)):
        check_seqs(command.seqs, count_max=state.settings.records_max, limit="records_max")
    _check_feature(state)
    topic, queue = state.queue(command.topic)
    begun, lost, returned = set(command.seqs), 0, 0
    now_ms = yield from until_present(topic, now_ms=now_ms)
    for number in queue.leases.isolated_of(command.node):
        if state.by_id.get(topic.id) is not topic:
            break
        held = queue.held(number)
        mine = [seq for seq in held if seq in begun]
        rest = [seq for seq in held if seq not in begun]
        events: list[Event] = []
        if mine:
            events.append(Lost(now_ms, topic.id, to_runs(mine), command.node, command.exit_code))
        if rest:
            events.append(Returned(now_ms, topic.id, to_runs(rest), command.node, now_ms))
        lost, returned = lost + len(mine), returned + len(rest)
        now_ms = yield events
        now_ms = yield from until_present(topic, now_ms=now_ms)
    return replies.EndedNode(topic.name, lost, returned), lease_level(topic.config) if lost + returned else Level.NOW


def lose(state: State, topic: Topic, numbers: Sequence[int], now_ms: int) -> Decision[None]:
    """Lose everything still held under these leases: their worker fell silent, and nobody says what it had begun.

    Time has passed on the topic.
    """
    queue = topic.queue
    if queue is None or state.by_id.get(topic.id) is not topic:
        return None, None, Level.NOW
    events: list[Event] = []
    for number in dict.fromkeys(numbers):
        lease = queue.lease(number)
        if lease is not None:
            events.append(Lost(now_ms, topic.id, to_runs(queue.held(number)), lease.node))
    return events or None, None, Level.NOW


def _check_feature(state: State) -> None:
    if "returns" not in state.features:
        raise feature_off("returns")
