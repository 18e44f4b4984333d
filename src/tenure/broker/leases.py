"""Claim, ack, nack, extend: the life of a lease, one command each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from tenure.broker.answer import LEVELS, Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_ttl
from tenure.broker.letters import dead_letter, park
from tenure.contract import replies
from tenure.contract.records import Stored
from tenure.core.backoff import delay_ms as backoff_ms
from tenure.core.claim import LETTERS_MAX, choose, ready_count
from tenure.core.config import LEASE_MS_MAX, LEASE_MS_MIN
from tenure.core.events import Acked, Claimed, Extended, Released
from tenure.core.names import check_key, check_node, check_reason
from tenure.core.queue import Queue
from tenure.core.ranges import count, each, to_runs
from tenure.core.settle import Holding, sift
from tenure.core.topic import Topic
from tenure.core.values import check_flag, check_seqs, check_whole
from tenure.errors import Corrupt, Invalid, Overloaded

__all__ = [
    "ack",
    "claim",
    "extend",
    "give_back",
    "nack",
    "release",
    "shift_deadline",
    "still_held",
]


def claim(
    engine: Engine,
    name: str,
    node: str,
    max_count: int = 1,
    lease_ms: int | None = None,
    claim_id: str | None = None,
    auto_ack: bool = False,
) -> Answer[replies.Grant]:
    """Lease up to ``max_count`` jobs to ``node``.

    An empty claim is an answer, not an error. Raises Overloaded at a cap.
    """
    topic, queue = engine.state.queue(name)
    check_node(node)
    if auto_ack is not False:
        check_flag(auto_ack, "auto_ack")
    if max_count.__class__ is not int or max_count != 1:
        max_count = clamp_claim(engine, max_count)
    lease_ms = topic.config.lease_ms if lease_ms is None else clamp_lease(lease_ms)
    now = engine.held_ms or engine.now()
    if now >= queue.next_at:
        engine.pass_time(topic, now)
    if claim_id is not None:
        check_key(claim_id, field="claim_id", bytes_max=engine.settings.key_bytes_max)
        number = queue.claims.get(claim_id)
        if number is not None:
            return _repeat(engine, topic, queue, number=number, node=node)
    if topic.config.ttl_ms:
        evict_over_ttl(engine, topic, now)
    runs, jobs, level = _take(engine, topic, queue, max_count, now=now)
    if not runs:
        empty = replies.Grant(name, node, 0, 0, [], {}, ready_count(topic, queue))
        return Answer(empty, engine.write() if level else 0, level, engine.gate)
    number, deadline = engine.state.next_lease, now + lease_ms
    batch = engine.commit(Claimed(now, topic.id, number, node, deadline, runs, claim_id), topic.id, urgent=True)
    engine.metrics.claimed += len(jobs)
    topic.last_read_ms = now + engine.state.wall_offset_ms
    counts = queue.deliveries
    redelivered = {seq: counts[seq] for seq in each(runs) if seq in counts} if counts else {}
    if auto_ack:
        batch = _ack(engine, topic, runs, len(jobs), node=node, now=now)
        reply = replies.Grant(name, node, 0, 0, jobs, redelivered, ready_count(topic, queue))
        return Answer(reply, batch, max(level, LEVELS[topic.config.durability]), engine.gate)
    shown = deadline + engine.state.wall_offset_ms
    reply = replies.Grant(name, node, number, shown, jobs, redelivered, ready_count(topic, queue), lease_ms)
    return Answer(reply, batch, max(level, _lease_level(topic)), engine.gate)


def _lease_level(topic: Topic) -> int:
    """What an answer about a lease waits for: its sync only where leases are durable, else that it is written."""
    config = topic.config
    if config.leases_durable:
        return Level.SYNCED
    return Level.NOW if config.durability == "memory" else Level.WRITTEN


def clamp_claim(engine: Engine, max_count: int) -> int:
    """How many jobs a claim may take: 0 acts as 1, more than the limit is the limit."""
    return min(check_whole(max_count, "max"), engine.settings.claim_max) or 1


def clamp_lease(lease_ms: int) -> int:
    """A lease's duration, held within what the contract allows."""
    return min(max(check_whole(lease_ms, "lease_ms"), LEASE_MS_MIN), LEASE_MS_MAX)


def _take(
    engine: Engine, topic: Topic, queue: Queue, max_count: int, *, now: int
) -> tuple[list[int], list[Stored], int]:
    """Choose jobs and read them; poisoned ones are dead-lettered and unreadable ones parked on the way.

    The last part is what an answer must wait for because of those that were buried.
    """
    level, buried = Level.NOW, 0
    runs, poisoned = choose(topic, queue, max_count)
    if poisoned:
        _, level = dead_letter(engine, topic, poisoned, reason=None, now=now)
        runs = _choose_again(topic, queue, max_count)
    while runs:
        try:
            return runs, engine.reader.records(topic, runs), level
        except Corrupt:
            jobs = _take_readable(engine, topic, runs, now=now)
        level, buried = max(level, Level.WRITTEN), buried + count(runs) - len(jobs)
        if jobs:
            return to_runs(job.seq for job in jobs), jobs, level
        if buried >= LETTERS_MAX:
            engine.touched.add(topic)  # the pass after this one goes on behind the damage
            break
        runs = _choose_again(topic, queue, max_count)
    return [], [], level


def _choose_again(topic: Topic, queue: Queue, max_count: int) -> list[int]:
    """Choose after jobs were buried; at a cap none, because burying them is an answer: the next claim meets the cap."""
    with suppress(Overloaded):
        return choose(topic, queue, max_count)[0]
    return []


def _take_readable(engine: Engine, topic: Topic, runs: list[int], *, now: int) -> list[Stored]:
    """A frame cannot be read: park the jobs in it, so that the rest of the queue goes on and nothing is lost sight
    of.
    """
    jobs, lost = engine.reader.sift(topic, runs)
    park(engine, topic, {seq: f"unreadable: {error.message}" for seq, error in lost.items()}, now=now)
    return jobs


def _repeat(engine: Engine, topic: Topic, queue: Queue, *, number: int, node: str) -> Answer[replies.Grant]:
    """The same claim again, whose answer was lost: the same jobs and lease, and no delivery counted.

    Where jobs were extended apart, the deadline is the earliest of theirs.
    """
    lease = queue.leases[number]
    if lease.node != node:
        raise Invalid(f"this claim_id belongs to another node ({lease.node!r}): use a fresh one")
    held = queue.held(number)
    jobs, _ = engine.reader.sift(topic, to_runs(held))  # one that cannot be read runs out, and is parked then
    if not jobs:
        return Answer(
            replies.Grant(topic.name, node, 0, 0, [], {}, ready_count(topic, queue)), 0, Level.NOW, engine.gate
        )
    redelivered = {seq: queue.deliveries[seq] for seq in held if seq in queue.deliveries}
    deadline = queue.deadline(number) + engine.state.wall_offset_ms
    reply = replies.Grant(topic.name, node, number, deadline, jobs, redelivered, ready_count(topic, queue))
    return Answer(reply, engine.write(), _lease_level(topic), engine.gate)


def _prepare(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int] | None,
    lease_ids: Sequence[str] | None,
    lease: str | None,
    strict: bool,
) -> tuple[Topic, Queue, int, Holding]:
    """What acks, nacks and extends have in common: check, let time pass, and see what the caller holds."""
    topic, queue = engine.state.queue(name)
    check_node(node)
    if strict is not False:
        check_flag(strict, "strict")
    _check_seqs(engine, seqs, lease, lease_ids)
    now = engine.held_ms or engine.now()
    if now >= queue.next_at:
        engine.pass_time(topic, now)
    return topic, queue, now, sift(topic, queue, node, seqs, lease_ids, lease, strict)


def _check_seqs(engine: Engine, seqs: Sequence[int] | None, lease: str | None, lease_ids: Sequence[str] | None) -> None:
    if seqs is None:
        if lease is None:
            raise Invalid("name the jobs: give seqs, or the lease_id of a claim")
        if lease_ids is not None:
            raise Invalid("lease_ids go with seqs, one each: give seqs too, or only the lease_id")
        return
    check_seqs(seqs, count_max=engine.settings.claim_max, limit="claim_max")


def ack(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int] | None = None,
    lease_ids: Sequence[str] | None = None,
    lease: str | None = None,
    strict: bool = False,
) -> Answer[replies.Settled]:
    """Complete jobs, which deletes them. What the caller does not hold is skipped; ``strict`` makes that LeaseLost."""
    topic, queue, now, (held, skipped) = _prepare(engine, name, node, seqs, lease_ids, lease, strict)
    batch, level, done = 0, Level.NOW, 0
    if held:
        runs = [held[0], 1] if len(held) == 1 else to_runs(held)
        done = runs[1] if len(runs) == 2 else count(runs)
        batch, level = _ack(engine, topic, runs, done, node=node, now=now), LEVELS[topic.config.durability]
    reply = replies.Settled(name, done, skipped, ready_count(topic, queue), len(queue.in_flight))
    return Answer(reply, batch, level, engine.gate)


def _ack(engine: Engine, topic: Topic, runs: list[int], done: int, *, node: str, now: int) -> int:
    size = engine.reader.weigh(topic, runs)
    batch = engine.commit(Acked(now, topic.id, runs, size, node), topic.id, urgent=True)
    engine.metrics.acked += done
    engine.touched.add(topic)
    return batch


def nack(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int] | None = None,
    lease_ids: Sequence[str] | None = None,
    lease: str | None = None,
    strict: bool = False,
    delay_ms: int | None = None,
    reason: str | None = None,
    dead: bool = False,
) -> Answer[replies.Settled]:
    """Give jobs back, now or after ``delay_ms`` (default: the queue's back-off); ``dead`` dead-letters them at once."""
    if delay_ms is not None:
        check_whole(delay_ms, "delay_ms")
    if reason is not None:
        check_reason(reason, bytes_max=engine.settings.reason_bytes_max)
    check_flag(dead, "dead")
    topic, queue, now, (held, skipped) = _prepare(engine, name, node, seqs, lease_ids, lease, strict)
    batch, level, done = 0, Level.NOW, len(set(held))
    if held and dead:
        batch, level = dead_letter(engine, topic, held, reason=reason or "rejected", now=now)
    elif held:
        batch = _release(engine, topic, queue, held, node=node, now=now, delay_ms=delay_ms, reason=reason)
        level = _lease_level(topic)
    engine.metrics.nacked += done
    reply = replies.Settled(name, done, skipped, ready_count(topic, queue), len(queue.in_flight))
    return Answer(reply, batch, level, engine.gate)


def _release(
    engine: Engine,
    topic: Topic,
    queue: Queue,
    held: list[int],
    *,
    node: str,
    now: int,
    delay_ms: int | None,
    reason: str | None,
) -> int:
    runs, dues, due = to_runs(held), None, now + min(delay_ms or 0, engine.settings.delay_ms_max)
    backoff = topic.config.retry_backoff
    if delay_ms is None and backoff is not None:
        counts = queue.deliveries
        dues = [now + backoff_ms(backoff, deliveries=counts.get(seq, 1), seq=seq) for seq in each(runs)]
    event = Released(now, topic.id, runs, node, due, dues, reason)
    batch = engine.commit(event, topic.id, urgent=True)
    engine.touched.add(topic)
    return batch


def release(engine: Engine, topic: Topic, numbers: Sequence[int]) -> None:
    """Give back everything still held under these leases: their connection is gone."""
    if topic.queue is None or engine.state.by_id.get(topic.id) is not topic:
        return
    now = engine.now()
    engine.pass_time(topic, now)
    for number in numbers:
        held = topic.queue.held(number)
        if held:
            node = topic.queue.leases[number].node
            event = Released(now, topic.id, to_runs(held), node, now, None, None, "disconnect")
            engine.commit(event, topic.id, urgent=True)
            engine.touched.add(topic)


def give_back(engine: Engine, claimed: replies.Grant) -> None:
    """Give back a claim whose caller went away before it was answered.

    A claim with a ``claim_id`` stays leased: its caller can ask for it again, and no delivery is counted for that.
    """
    found = _queue_of(engine, claimed)
    lease = found[1].leases.get(claimed.lease) if found is not None else None
    if found is not None and lease is not None and lease.claim_id is None:
        release(engine, found[0], [claimed.lease])


def still_held(engine: Engine, claimed: replies.Grant) -> replies.Grant:
    """The claim with those of its jobs that are held under its lease now; empty, without a lease, where none is."""
    found = _queue_of(engine, claimed)
    held = set(found[1].held(claimed.lease)) if found is not None else set()
    if len(held) == len(claimed.jobs):
        return claimed
    jobs = [job for job in claimed.jobs if job.seq in held]
    return (
        replace(claimed, jobs=jobs) if jobs else replies.Grant(claimed.topic, claimed.node, 0, 0, [], {}, claimed.ready)
    )


def _queue_of(engine: Engine, claimed: replies.Grant) -> tuple[Topic, Queue] | None:
    """The queue that a claim is about, with the time let pass on it; None where it was deleted."""
    topic = engine.state.topics.get(claimed.topic)
    if topic is None or topic.queue is None:
        return None
    engine.pass_time(topic, engine.now())
    return topic, topic.queue


def extend(
    engine: Engine,
    name: str,
    node: str,
    seqs: Sequence[int] | None = None,
    lease_ids: Sequence[str] | None = None,
    lease: str | None = None,
    strict: bool = False,
    lease_ms: int | None = None,
) -> Answer[replies.Extended]:
    """Set the deadline of held jobs to now plus ``lease_ms``; it may be left out where a lease is named."""
    topic, _ = engine.state.queue(name)
    if lease_ms is None:
        if lease is None:
            raise Invalid("lease_ms is required: how long from now do you need the jobs?")
        lease_ms = topic.config.lease_ms
    lease_ms = clamp_lease(lease_ms)
    topic, queue, now, (held, skipped) = _prepare(engine, name, node, seqs, lease_ids, lease, strict)
    batch, level, deadline = 0, Level.NOW, now + lease_ms
    runs = to_runs(held)
    if runs:
        batch = _extend(engine, topic, queue, Extended(now, topic.id, runs, deadline, node))
        engine.metrics.extended += sum(runs[1::2])
        level = _lease_level(topic)
    shown = deadline + engine.state.wall_offset_ms
    return Answer(replies.Extended(name, dict.fromkeys(each(runs), shown), skipped), batch, level, engine.gate)


def shift_deadline(engine: Engine, claimed: replies.Grant, *, lease_ms: int) -> tuple[int, int] | None:
    """Let a lease whose claim waits for its sync last ``lease_ms`` from now, in the log too.

    Returns the batch that says so and the new deadline in log time; None where nothing is held any more.
    """
    found = _queue_of(engine, claimed)
    held = found[1].held(claimed.lease) if found is not None else []
    if found is None or not held:
        return None
    now, (topic, queue) = engine.now(), found
    event = Extended(now, topic.id, to_runs(held), now + lease_ms, claimed.node, "sync")
    return _extend(engine, topic, queue, event), now + lease_ms


def _extend(engine: Engine, topic: Topic, queue: Queue, event: Extended) -> int:
    """Log new deadlines; one that comes before all others is what those who wait must be woken by."""
    next_at = queue.next_at
    batch = engine.commit(event, topic.id, urgent=True)
    if queue.next_at < next_at:
        engine.touched.add(topic)
    return batch
