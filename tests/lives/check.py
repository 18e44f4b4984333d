"""What must hold of a broker at rest: its state, its log, and everybody who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tenure.broker.durability.trim import trim_due
from tenure.broker.engine import Engine
from tenure.broker.serving.streams import WorkStream
from tenure.contract.commands import Claim
from tenure.core.state.invariants import invariants
from tenure.core.state.queue import Queue
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.core.suspects import choose_for
from tenure.errors import Overloaded
from tenure.log import checkpoint
from tenure.log.interface import Position
from tenure.log.log import FileLog
from tenure.settings import Settings
from tenure.testing import SimDisk
from tests.lives.anomaly import Anomaly
from tests.lives.witness import Witness
from tests.model.machine import assert_same, dumped, folded, let_pass

if TYPE_CHECKING:
    from tests.lives.life import Life

__all__ = [
    "Ends",
    "all_is_synced",
    "ends",
    "fold_agrees",
    "fold_agrees_on",
    "hungry",
    "log_is_trimmed",
    "log_time",
    "nobody_holds_for_the_gone",
    "state_holds",
    "stream_is_bounded",
]


def state_holds(engine: Engine, witness: Witness) -> None:
    """The state does not contradict itself, nor the events that led to it."""
    try:
        invariants(engine.state)
    except AssertionError as error:
        raise Anomaly("invariants", str(error)) from error
    witness.compare(engine.state, log_time(engine))


def log_time(engine: Engine) -> int:
    """Log time, without letting the engine notice that it was asked."""
    return engine.clock_ms()


# The same fold three ways


def fold_agrees(engine: Engine, disk: SimDisk, remembered: list[tuple[Position, bytes]]) -> None:
    """The live state, a replay from zero, and every checkpoint with the rest of the log are the same, to the byte.

    ``disk`` is a copy of the one that the engine writes to: a log that is replayed may write.
    """
    now = log_time(engine)
    live = load_checkpoint(dump_checkpoint(engine.state))
    _same("live and written out", live, engine.state, engine.state.log_ms)
    _ends_alike("written out and read back", live, now)
    log = FileLog.open(disk, segment_bytes=engine.settings.segment_bytes)
    replayed = folded(State(), list(log.replay()))
    _compare("replayed from zero", replayed, live, now)
    for position, payload in remembered:
        if log.contains(position):
            resumed = folded(load_checkpoint(payload), list(log.replay(position)))
            _compare("resumed from a checkpoint", resumed, live, now)


def fold_agrees_on(disk: SimDisk, settings: Settings, now: int) -> None:
    """What a crash left folds to the same state from zero and from every checkpoint beside it."""
    log = FileLog.open(disk, segment_bytes=settings.segment_bytes)
    replayed = folded(State(), list(log.replay()))
    for position, payload in checkpoint.load(disk):
        if log.contains(position):
            resumed = folded(load_checkpoint(payload), list(log.replay(position)))
            _compare("resumed from a checkpoint", resumed, replayed, now)


def _compare(what: str, left: State, right: State, now: int) -> None:
    let_pass(left, now)
    let_pass(right, now)
    _same(what, left, right, now)


def _same(what: str, left: State, right: State, now: int) -> None:
    try:
        invariants(left)
        assert_same(dumped(left, now), dumped(right, now))
    except AssertionError as error:
        raise Anomaly("fold", f"{what}: {error}") from error


def _ends_alike(what: str, state: State, now: int) -> None:
    """Long after every deadline nothing is in flight."""
    copied = load_checkpoint(dump_checkpoint(state))
    let_pass(copied, now + 10**9)
    for topic in copied.by_id.values():
        if topic.queue is not None and topic.queue.in_flight:
            raise Anomaly("immortal", f"{what}: {len(topic.queue.in_flight)} jobs of {topic.name} never come back")


# Everybody who waits


def hungry(life: Life, *, by_the_wall: bool = False) -> set[str]:
    """Who waits on a queue for a job that could be claimed, at this moment.

    The broker may take its time to notice that the wall clock was set; ``by_the_wall`` goes by what it shows now.
    """
    copied, now = load_checkpoint(dump_checkpoint(life.engine.state)), log_time(life.engine)
    if by_the_wall:
        copied.wall_offset_ms = life.clock.wall_ms() - now
        for queue in [topic.queue for topic in copied.by_id.values() if topic.queue is not None]:
            queue.plan(copied.wall_offset_ms)
    let_pass(copied, now)
    copied.settings, copied.features = life.settings, life.engine.state.features
    windows = {topic.id for topic in life.broker._serving.coordinator._cohorts}
    found: set[str] = set()
    for call in life.calls:
        topic = copied.topics.get(call.topic)
        if call.task.done() or topic is None or topic.queue is None or topic.id in windows:
            continue
        if call.what == "claim" or (call.what == "read" and call.stream is not None and call.stream.wants()):
            live = life.engine.state.by_id[topic.id]
            topic.durable_seq = live.durable_seq
            claim = call.claim if call.stream is None else call.stream.claim
            if claim is not None and live.queue is not None and _claimable(copied, topic, live.queue, claim, now):
                found.add(f"{call} of {call.node}")
    return found


def _claimable(state: State, topic: Topic, live: Queue, claim: Claim, now: int) -> bool:
    """Whether this claim would be given a job. Only the live queue knows since when suspects wait, and who has one."""
    assert topic.queue is not None
    line = topic.queue.suspects
    line.since_ms, line.borrowed = max(line.since_ms, live.suspects.since_ms), live.suspects.borrowed
    try:
        return any(choose_for(state, topic, topic.queue, claim, 1, now_ms=now))
    except Overloaded:
        return False


class Ends(NamedTuple):
    """How far the log and each topic reach."""

    batch: int
    heads: dict[int, int]


def ends(engine: Engine) -> Ends:
    """Note what is there now."""
    log = engine.log
    batch = log.pending_batch if getattr(log, "_pending", None) else log.written_batch
    return Ends(batch, {topic.id: topic.head_seq for topic in engine.state.by_id.values()})


def all_is_synced(engine: Engine, before: Ends) -> None:
    """A broker that was left alone for its sync interval has made durable, and shows, what was there before."""
    if engine.log.failed is not None:
        return
    if engine.log.synced_batch < before.batch:
        raise Anomaly("unsynced", f"batch {before.batch} is not durable, synced are {engine.log.synced_batch}")
    for topic in engine.state.by_id.values():
        head = before.heads.get(topic.id, 0)
        if topic.config.durability == "fsync" and topic.durable_seq < head:
            raise Anomaly("unsynced", f"{topic.name} went to {head}, and can be seen to {topic.durable_seq}")


def nobody_holds_for_the_gone(life: Life) -> None:
    """A long poll that was cancelled holds nothing."""
    for call in life.calls:
        topic = life.engine.state.topics.get(call.topic)
        if call.what != "claim" or not (call.is_cancelled and call.is_alone and call.was_empty) or topic is None:
            continue
        if topic.queue is not None and any(
            topic.queue.leases.node(row) == call.node for row in topic.queue.in_flight.values()
        ):
            raise Anomaly("nobody", f"{call} was cancelled, and jobs are held for {call.node}")


def stream_is_bounded(stream: WorkStream) -> None:
    """A stream that nobody reads holds no more than it may, and does not keep for ever what it was once given."""
    queue, given = stream.topic.queue or Queue(), [answer.reply for answer in getattr(stream, "_given", ())]
    leases = [(claim.lease, queue.holder(seq)) for claim in given for seq in claim.seqs]
    held = sum(lease is not None and lease.number == number for number, lease in leases)
    if held > stream.max_count or len(leases) > 4 * stream.max_count + 8:
        raise Anomaly("stream", f"{len(leases)} jobs, {held} held, in an unread stream of {stream.max_count}")


def log_is_trimmed(engine: Engine) -> None:
    """A log larger than what it holds justifies does not stay so, unless its disk has failed."""
    if engine.log.failed is None and trim_due(engine):
        size = sum(segment.used_bytes for segment in engine.log.segments())
        raise Anomaly("trim", f"the log has {size} bytes for {engine.state.live_bytes} live ones and is not trimmed")
