"""Decide redrives: dead letters go back to work, each in one log batch with its removal from the dead-letter topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from tenure.contract import provenance, replies
from tenure.contract.bounds import UNBOUND, Bounds
from tenure.contract.commands import Redrive
from tenure.contract.dead_letters import Selection
from tenure.contract.names import check_reason, describe_value
from tenure.contract.provenance import Provenance
from tenure.contract.records import Record, Stored
from tenure.contract.values import check_flag, check_seqs, check_whole
from tenure.core.decide.decision import Decided, Payloads, Steps, append_copies, until_present
from tenure.core.decide.evict import evict_over_cap
from tenure.core.decide.limits import check_topic_room
from tenure.core.events import Appended, AppendExtra, Event, Redriven
from tenure.core.level import LEVELS, Level
from tenure.core.state.ranges import count, first_absent, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.core.tag_match import parse_match
from tenure.errors import Invalid, NotFound, Overloaded
from tenure.settings import Settings

__all__ = ["redrive"]

_WINDOW = 256
_LOW: Final = (1 << 64) - 1


def redrive(
    state: State, command: Redrive, now_ms: int, payloads: Payloads, bounds: Bounds = UNBOUND
) -> Decided[replies.Redriven]:
    """Put dead letters back to work: parked jobs of a queue in place, records of a dead-letter topic where they came
    from, in steps.

    ``to`` names another target; ``reaches`` says which origins the caller may write to. Each job moves atomically, its
    provenance kept. One that cannot be read stays where it is. It stops before the first one that cannot move; where
    that is the very first, it raises why: NotFound for a target that is gone, Overloaded for one that is full.

    A ``dry_run`` moves none: it answers which would go where, and does not look whether they could.

    A job that ``block_and_dlq`` parked and copied is one job: whichever of the two is redriven into the queue, the
    parked one becomes claimable and the copy is removed, in one batch. With another ``to`` the copy alone moves.
    """
    topic = state.topic(command.topic)
    wanted = _parse_wanted(command, bounds, state.settings)
    if command.to is not None:
        state.topic(command.to)
        if command.to == command.topic:
            raise Invalid("a topic cannot be redriven into itself")
    if topic.queue is not None and command.to is None and topic.queue.parked:
        return _unpark(state, topic, wanted, now_ms, payloads)
    return _send_back(state, topic, wanted, now_ms, payloads, to=command.to)


class _Wanted(NamedTuple):
    """The dead letters that a redrive is about, how many at most, and whether their delivery counts are reset."""

    letters: Selection
    bounds: Bounds
    limit: int
    reset: bool
    dry: bool


def _parse_wanted(command: Redrive, bounds: Bounds, settings: Settings) -> _Wanted:
    limit, seqs, match = command.limit, command.seqs, command.match
    limit = settings.claim_max if limit is None else min(check_whole(limit, "limit", least=1), settings.records_max)
    check_flag(command.reset_deliveries, "reset_deliveries")
    check_flag(command.dry_run, "dry_run")
    if seqs is not None:
        check_seqs(seqs, count_max=settings.records_max, limit="records_max")
    if command.reason_like is not None:
        check_reason(command.reason_like, bytes_max=settings.reason_bytes_max)
    letters = Selection(
        match=parse_match(match, bytes_max=settings.tag_bytes_max) if match is not None else None,
        seqs=set(seqs) if seqs is not None else None,
        reason_like=command.reason_like,
    )
    return _Wanted(letters, bounds, limit, command.reset_deliveries, command.dry_run)


def _unpark(
    state: State, topic: Topic, wanted: _Wanted, now_ms: int, payloads: Payloads
) -> Steps[tuple[replies.Redriven, int]]:
    assert topic.queue is not None
    resumed: list[int] = []
    level: int = Level.NOW
    windows = _windows(topic, wanted.letters.seqs)
    if wanted.letters.match is not None:  # tags are read with their records
        windows = _readable(topic, windows, payloads, bytes_max=state.settings.step_bytes_max)
    for window in windows:
        now_ms = yield from until_present(topic, now_ms=now_ms)
        if len(resumed) == wanted.limit or state.by_id.get(topic.id) is not topic:
            break
        parked = {seq: topic.queue.parked[seq] for seq in window if seq in topic.queue.parked}
        seqs = _select_parked(topic, parked, wanted, payloads)[: wanted.limit - len(resumed)]
        if seqs and not wanted.dry:
            letters = {copy[0] for copy in _live_copies(state, topic, seqs)}
            now_ms = yield from until_present(topic, *letters, now_ms=now_ms)
            seqs = [seq for seq in seqs if seq in topic.queue.parked]  # other commands may have run since
            level = max(level, (yield from _resume(state, topic, seqs, now_ms, payloads, reset=wanted.reset)))
        resumed += seqs
        now_ms = yield []
    return _reply(topic, dict.fromkeys(resumed, topic.name), wanted, to=topic.name), level


def _windows(topic: Topic, seqs: Set[int] | None) -> Iterator[Sequence[int]]:
    """Yield the seqs that a redrive looks at, ascending, a window at a time; some may be dead by then."""
    if seqs is not None:
        listed = sorted(seqs)
        yield from (listed[at : at + _WINDOW] for at in range(0, len(listed), _WINDOW))
        return
    lo, end = topic.floor, topic.visible_seq + 1
    while lo < end:
        lo = max(first_absent(topic.dead, lo) if topic.dead else lo, topic.floor)
        yield range(lo, min(lo + _WINDOW, end))
        lo += _WINDOW


def _readable(
    topic: Topic, windows: Iterator[Sequence[int]], payloads: Payloads, *, bytes_max: int
) -> Iterator[Sequence[int]]:
    """Yield the live seqs of windows in parts whose records one step may read."""
    for window in windows:
        left = [seq for seq in window if not topic.is_dead(seq)]
        while left:
            size = count(payloads.fitting(topic, to_runs(left), bytes_max))
            yield left[:size]
            left = [seq for seq in left[size:] if not topic.is_dead(seq)]


def _select_parked(topic: Topic, parked: dict[int, str], wanted: _Wanted, payloads: Payloads) -> list[int]:
    """Return which of these parked jobs a redrive is about."""
    tags: dict[int, str | None] = {}
    if wanted.letters.match is not None:
        tags = {record.seq: record.tag for record in payloads.readable(topic, to_runs(parked))[0]}
    return [seq for seq, reason in parked.items() if wanted.letters.takes(seq, tags.get(seq), reason)]


def _resume(state: State, topic: Topic, seqs: list[int], now_ms: int, payloads: Payloads, *, reset: bool) -> Steps[int]:
    """Make parked jobs claimable and remove their copies among the dead letters, in one batch; returns its level.

    Time has passed on the queue of the jobs, and on the topics of the letters.
    """
    if not seqs or state.by_id.get(topic.id) is not topic:
        return Level.NOW
    events: list[Event] = [Redriven(now_ms, topic.id, to_runs(seqs), 0, reset)]
    level = LEVELS[topic.config.durability]
    for letters, first, seq, copies in _live_copies(state, topic, seqs):
        runs = [first, copies]
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
            before, first, job, copies = found[-1]
            if (before, first + copies, job + copies) == (letters, letter, seq):
                found[-1] = before, first, job, copies + 1
                continue
        found.append((letters, letter, seq, 1))
    return found


def _send_back(
    state: State, topic: Topic, wanted: _Wanted, now_ms: int, payloads: Payloads, *, to: str | None
) -> Steps[tuple[replies.Redriven, int]]:
    level: int = Level.NOW
    moved: dict[int, str] = {}
    windows = _windows(topic, wanted.letters.seqs)
    for window in _readable(topic, windows, payloads, bytes_max=state.settings.step_bytes_max):
        now_ms = yield []
        for letter, origin in _read_letters(topic, window, payloads):
            target = to or origin.topic
            if not _is_wanted(letter, origin, wanted, topic, target):
                continue
            now_ms = yield from until_present(
                *(found for found in (topic, state.topics.get(target)) if found is not None), now_ms=now_ms
            )
            if not _is_free(state, topic, letter.seq):
                continue
            if not wanted.dry:
                try:
                    moved_level = yield from _move(
                        state, topic, letter, target, now_ms, payloads, origin=origin, reset=wanted.reset
                    )
                except (NotFound, Overloaded):
                    if not moved:
                        raise
                    return _reply(topic, moved, wanted, to=to), level
                level = max(level, moved_level, LEVELS[topic.config.durability])
            moved[letter.seq] = target
            if len(moved) == wanted.limit:
                return _reply(topic, moved, wanted, to=to), level
            now_ms = yield []
    return _reply(topic, moved, wanted, to=to), level


def _reply(topic: Topic, moved: dict[int, str], wanted: _Wanted, *, to: str | None) -> replies.Redriven:
    """Return the reply about letters and where each went, or in a dry run would go."""
    destinations = dict(sorted(Counter(moved.values()).items()))
    done = 0 if wanted.dry else len(moved)
    return replies.Redriven(topic.name, done, ",".join(destinations) or (to or ""), list(moved), destinations)


def _read_letters(topic: Topic, window: Sequence[int], payloads: Payloads) -> Iterator[tuple[Stored, Provenance]]:
    """Yield the readable dead letters among these seqs with their provenance."""
    letters, _ = payloads.readable(topic, to_runs(seq for seq in window if not topic.is_dead(seq)))
    for letter in letters:
        origin = provenance.read(letter.meta)
        if origin is not None:
            yield letter, origin


def _is_wanted(letter: Stored, origin: Provenance, wanted: _Wanted, topic: Topic, target: str) -> bool:
    if not wanted.letters.takes(letter.seq, letter.tag, origin.reason):
        return False
    if target == topic.name:
        return False  # already back at work here
    return wanted.bounds.covers(target)


def _is_free(state: State, topic: Topic, seq: int) -> bool:
    """Return whether a letter is still there, and not held; other commands may have run since it was read."""
    is_held = topic.queue is not None and seq in topic.queue.in_flight
    return state.by_id.get(topic.id) is topic and not topic.is_dead(seq) and not is_held


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
    if target.queue is not None:
        appended = _with_past(state, appended, origin, reset=reset)
    size = payloads.weigh(topic, [letter.seq, 1])
    yield [appended, Redriven(now_ms, topic.id, [letter.seq, 1], size, reset, target.id, seq)]
    yield from evict_over_cap(state, target, now_ms, payloads)
    return LEVELS[target.config.durability]


def _with_past(state: State, appended: Appended, origin: Provenance, *, reset: bool) -> Appended:
    """Return the append of a redriven job with what it brings along: its deliveries that were tries, unless they are
    reset, and that it is a suspect. What was lost too often to be begun gets another chance.
    """
    extra, seq = appended.extra or AppendExtra(), appended.first_seq
    if not reset and origin.deliveries:
        extra = msgspec.structs.replace(extra, deliveries=[seq, origin.tries or origin.deliveries])
    if origin.lost and "returns" in state.features:
        extra = msgspec.structs.replace(extra, losses=[seq, min(origin.lost, state.settings.losses_max - 1)])
    return appended if extra == AppendExtra() else msgspec.structs.replace(appended, extra=extra)
