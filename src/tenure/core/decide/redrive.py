"""Decide redrives: dead letters go back to work, each in one log batch with its removal from the dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from tenure.contract import provenance, replies
from tenure.contract.commands import Reaches, Redrive
from tenure.contract.dead_letters import Selection
from tenure.contract.names import check_reason, describe_value
from tenure.contract.provenance import Provenance
from tenure.contract.records import Record, Stored
from tenure.contract.values import check_flag, check_reaches, check_seqs, check_whole
from tenure.core.decide.decision import Decided, Payloads, Steps, append_copies
from tenure.core.decide.evict import evict_over_cap
from tenure.core.decide.limits import check_topic_room
from tenure.core.events import AppendExtra, Event, Redriven
from tenure.core.level import LEVELS, Level
from tenure.core.state.ranges import to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.core.tag_match import parse_match
from tenure.errors import Invalid, NotFound, Overloaded
from tenure.settings import Settings

__all__ = ["redrive"]

_WINDOW = 256
_LOW: Final = (1 << 64) - 1


def redrive(state: State, command: Redrive, now_ms: int, payloads: Payloads) -> Decided[replies.Redriven]:
    """Put dead letters back to work: parked jobs of a queue in place, records of a dead-letter topic where they came
    from.

    ``to`` names another target; ``reaches`` says which origins the caller may write to. Each job moves atomically, its
    provenance kept. One that cannot be read stays where it is. It stops before the first one that cannot move; where
    that is the very first, it raises why: NotFound for a target that is gone, Overloaded for one that is full.

    A job that ``block_and_dlq`` parked and copied is one job: whichever of the two is redriven into the queue, the
    parked one becomes claimable and the copy is removed, in one batch. With another ``to`` the copy alone moves.
    """
    topic = state.topic(command.topic)
    wanted = _parse_wanted(command, state.settings)
    if command.to is not None:
        state.topic(command.to)
        if command.to == command.topic:
            raise Invalid("a topic cannot be redriven into itself")
    state.pass_time(topic, now_ms)
    if topic.queue is not None and command.to is None and topic.queue.parked:
        return _unpark(state, topic, wanted, now_ms, payloads)
    return _send_back(state, topic, wanted, now_ms, payloads, to=command.to)


class _Wanted(NamedTuple):
    """The dead letters that a redrive is about, how many at most, and whether their delivery counts are reset."""

    letters: Selection
    reaches: Reaches | None
    limit: int
    reset: bool


def _parse_wanted(command: Redrive, settings: Settings) -> _Wanted:
    limit, seqs, match = command.limit, command.seqs, command.match
    limit = settings.claim_max if limit is None else min(check_whole(limit, "limit", least=1), settings.records_max)
    check_flag(command.reset_deliveries, "reset_deliveries")
    check_reaches(command.reaches)
    if seqs is not None:
        check_seqs(seqs, count_max=settings.records_max, limit="records_max")
    if command.reason_like is not None:
        check_reason(command.reason_like, bytes_max=settings.reason_bytes_max)
    letters = Selection(
        match=parse_match(match, bytes_max=settings.tag_bytes_max) if match is not None else None,
        seqs=set(seqs) if seqs is not None else None,
        reason_like=command.reason_like,
    )
    return _Wanted(letters, command.reaches, limit, command.reset_deliveries)


def _unpark(
    state: State, topic: Topic, wanted: _Wanted, now_ms: int, payloads: Payloads
) -> Steps[tuple[replies.Redriven, int]]:
    assert topic.queue is not None
    seqs: list[int] = []
    for seq, reason in sorted(topic.queue.parked.items()):
        record = payloads.readable(topic, [seq, 1])[0] if wanted.letters.match is not None else []
        if wanted.letters.takes(seq, record[0].tag if record else None, reason):
            seqs.append(seq)
        if len(seqs) == wanted.limit:
            break
    level = Level.NOW
    if seqs:
        level = yield from _resume(state, topic, seqs, now_ms, payloads, reset=wanted.reset)
    return replies.Redriven(topic.name, len(seqs), topic.name, seqs), level


def _resume(state: State, topic: Topic, seqs: list[int], now_ms: int, payloads: Payloads, *, reset: bool) -> Steps[int]:
    """Make parked jobs claimable and remove their copies among the dead letters, in one batch; returns its level."""
    state.pass_time(topic, now_ms)
    events: list[Event] = [Redriven(now_ms, topic.id, to_runs(seqs), 0, reset)]
    level = LEVELS[topic.config.durability]
    for letters, first, seq, count in _live_copies(state, topic, seqs):
        state.pass_time(letters, now_ms)
        runs = [first, count]
        events.append(Redriven(now_ms, letters.id, runs, payloads.weigh(letters, runs), reset, topic.id, seq))
        level = max(level, LEVELS[letters.config.durability])
    yield events
    return level


def _live_copies(state: State, topic: Topic, seqs: list[int]) -> list[tuple[Topic, int, int, int]]:
    """Return the live copies of parked jobs, as runs that ascend on both sides: (topic, first letter, first job,
    count).
    """
    assert topic.queue is not None
    found: list[tuple[Topic, int, int, int]] = []
    for seq in seqs:
        copy = topic.queue.copies.get(seq, 0)
        letters, letter = state.by_id.get(copy >> 64), copy & _LOW
        if letters is None or letters.is_dead(letter):
            continue
        if found:
            before, first, job, count = found[-1]
            if (before, first + count, job + count) == (letters, letter, seq):
                found[-1] = before, first, job, count + 1
                continue
        found.append((letters, letter, seq, 1))
    return found


def _send_back(
    state: State, topic: Topic, wanted: _Wanted, now_ms: int, payloads: Payloads, *, to: str | None
) -> Steps[tuple[replies.Redriven, int]]:
    held = topic.queue.in_flight if topic.queue is not None else {}
    level, moved, targets = Level.NOW, list[int](), set[str]()
    for letter, origin in _read_letters(topic, payloads):
        if letter.seq in held or not wanted.letters.takes(letter.seq, letter.tag, origin.reason):
            continue
        target = to or origin.topic
        if target == topic.name:
            continue  # already back at work here
        if wanted.reaches is not None and not wanted.reaches(target):
            continue  # any producer may write any origin into a letter
        try:
            moved_level = yield from _move(
                state, topic, letter, target, now_ms, payloads, origin=origin, reset=wanted.reset
            )
        except (NotFound, Overloaded):
            if moved:
                break
            raise
        level = max(level, moved_level, LEVELS[topic.config.durability])
        moved.append(letter.seq)
        targets.add(target)
        if len(moved) == wanted.limit:
            break
    return replies.Redriven(topic.name, len(moved), ",".join(sorted(targets)) or (to or ""), moved), level


def _read_letters(topic: Topic, payloads: Payloads) -> Iterator[tuple[Stored, Provenance]]:
    """Yield the readable dead letters of a topic with their provenance, oldest first, a window at a time."""
    lo = topic.floor
    while lo <= topic.visible_seq:
        hi = min(lo + _WINDOW, topic.visible_seq + 1)
        letters, _ = payloads.readable(topic, topic.live_runs(lo, hi))
        for letter in letters:
            origin = provenance.read(letter.meta)
            if origin is not None:
                yield letter, origin
        lo = max(hi, topic.floor)


def _move(
    state: State,
    topic: Topic,
    letter: Stored,
    target_name: str,
    now_ms: int,
    payloads: Payloads,
    *,
    origin: Provenance,
    reset: bool,
) -> Steps[int]:
    """Move one letter to its target; returns the level that the target asks for."""
    target = state.topics.get(target_name)
    if target is None:
        raise NotFound(
            f"dead letter {letter.seq} came from {describe_value(target_name)}, which is gone: name another target",
            code="topic_not_found",
            topic=target_name,
        )
    # The link is the queue's own: a letter that a producer wrote cannot un-park anything.
    if target.queue is not None and target.queue.copies.get(origin.seq) == topic.id << 64 | letter.seq:
        return (yield from _resume(state, target, [origin.seq], now_ms, payloads, reset=reset))
    seq = target.head_seq + 1
    record = Record(data=letter.data, tag=letter.tag, node=letter.node, meta=letter.meta)
    appended = append_copies(state, target.id, seq, [record], now_ms=now_ms, moved_from=topic.id)
    check_topic_room(target, target.config, records=1, size=len(appended.blobs))
    if not reset and origin.deliveries and target.queue is not None:
        extra = msgspec.structs.replace(appended.extra or AppendExtra(), deliveries=[seq, origin.deliveries])
        appended = msgspec.structs.replace(appended, extra=extra)
    size = payloads.weigh(topic, [letter.seq, 1])
    yield [appended, Redriven(now_ms, topic.id, [letter.seq, 1], size, reset, target.id, seq)]
    yield from evict_over_cap(state, target, now_ms, payloads)
    return LEVELS[target.config.durability]
