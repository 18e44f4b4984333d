"""Dead letters: jobs that failed too often leave the queue in one log write with their removal, and can come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from tenure.broker.answer import LEVELS, Answer, Level
from tenure.broker.engine import Engine
from tenure.broker.evict import evict_over_cap
from tenure.broker.room import check_not_retired, check_topic_room
from tenure.contract import provenance, replies
from tenure.contract.provenance import Provenance
from tenure.contract.records import Record, Stored
from tenure.core.claim import LETTERS_MAX
from tenure.core.config import TopicConfig, shared
from tenure.core.events import AppendExtra, DeadLettered, Event, Redriven, TopicPut
from tenure.core.matching import parse_match
from tenure.core.names import check_reason, shown
from tenure.core.ranges import to_runs
from tenure.core.topic import Topic
from tenure.core.values import check_flag, check_reaches, check_seqs, check_whole
from tenure.errors import Invalid, NotFound, Overloaded

__all__ = ["dead_letter", "park", "redrive"]

SPENT: Final = "max_deliveries"
"""Why a job died that was delivered often enough and never given back with a reason."""
_WINDOW = 256
_LOW = (1 << 64) - 1


def dead_letter(engine: Engine, topic: Topic, seqs: list[int], *, reason: str | None, now: int) -> tuple[int, int]:
    """Apply the queue's strategy to these jobs; returns the batch and what an answer about it waits for.

    ``skip`` moves them to the dead-letter topic (with none: removes them), ``block`` parks them, ``block_and_dlq``
    does both. A dead-letter topic that is full or may not be created, or a record that cannot be read, parks the job
    instead: it is never lost. Without a ``reason`` each dies of the last one that it was given back with, or of
    ``max_deliveries`` where there was none.
    """
    config, queue = topic.config, topic.queue
    assert queue is not None
    dest_name = config.dead_letter if config.dlq_strategy != "block" else None
    level = LEVELS[config.durability]
    batch = 0
    for start in range(0, len(seqs), LETTERS_MAX):
        part = seqs[start : start + LETTERS_MAX]
        reasons = {seq: reason or queue.last_reason(seq) or SPENT for seq in part}
        if dest_name is not None:
            batch, dest_level = _post(engine, topic, reasons, dest_name, now=now)
            level = max(level, dest_level)
        elif config.dlq_strategy == "skip":
            batch = _drop(engine, topic, reasons, now=now)
        else:
            batch = park(engine, topic, reasons, now=now)
    engine.metrics.dead_lettered += len(seqs)
    engine.touched.add(topic)
    return batch, level


def _drop(engine: Engine, topic: Topic, reasons: Mapping[int, str], *, now: int) -> int:
    events = [
        DeadLettered(now, topic.id, runs, "drop", reason, engine.reader.weigh(topic, runs))
        for runs, reason in _by_reason(reasons)
    ]
    return engine.commit_all(*((event, topic.id) for event in events), urgent=True)


def _post(engine: Engine, topic: Topic, reasons: Mapping[int, str], dest_name: str, *, now: int) -> tuple[int, int]:
    """Append the jobs to the dead-letter topic and take them out of the queue, in one batch; park those that cannot
    be read.
    """
    queue, dest = topic.queue, engine.state.topics.get(dest_name)
    assert queue is not None
    config = dest.config if dest is not None else shared(TopicConfig(durability=topic.config.durability))
    dest_id, first_seq = (dest.id, dest.head_seq + 1) if dest is not None else (engine.state.next_topic_id, 1)
    try:
        if dest is None:
            check_not_retired(engine, dest_name)
        letters, lost = engine.reader.sift(topic, to_runs(reasons))
        records = [
            _stamp(topic, letter, queue.deliveries.get(letter.seq, 1), reasons[letter.seq]) for letter in letters
        ]
        appended = engine.appended(dest_id, first_seq, records, now=now, moved_from=topic.id)
        check_topic_room(dest, config, records=len(records), size=len(appended.blobs))
    except (NotFound, Overloaded) as error:
        parked = {seq: f"{reason}; {error.message}" for seq, reason in reasons.items()}
        return park(engine, topic, parked, now=now), Level.WRITTEN
    unreadable = {seq: f"{reasons[seq]}; unreadable: {error.message}" for seq, error in lost.items()}
    if not letters:
        return park(engine, topic, unreadable, now=now), Level.WRITTEN
    events: list[tuple[Event, int]] = []
    if dest is None:
        events.append((TopicPut(now, dest_id, dest_name, config, implicit=True), dest_id))
    events.append((appended, dest_id))
    moved = {letter.seq: reasons[letter.seq] for letter in letters}
    events += [(event, topic.id) for event in _moved(engine, topic, moved, dest_id, first_seq, now=now)]
    events += [(event, topic.id) for event in _parked(topic, unreadable, now)]
    batch = engine.commit_all(*events, urgent=True)
    evict_over_cap(engine, engine.state.by_id[dest_id], now)
    return batch, LEVELS[config.durability]


def _moved(
    engine: Engine, topic: Topic, reasons: Mapping[int, str], dest_id: int, first_seq: int, *, now: int
) -> list[DeadLettered]:
    """The events that take jobs out of the queue, in the order of their letters: one for each stretch of jobs that
    died of the same.
    """
    move = topic.config.dlq_strategy == "skip"
    events: list[DeadLettered] = []
    for reason, stretch in groupby(reasons, key=reasons.__getitem__):
        seqs = list(stretch)
        runs = to_runs(seqs)
        size = engine.reader.weigh(topic, runs) if move else 0
        action = "move" if move else "copy"
        events.append(DeadLettered(now, topic.id, runs, action, reason, size, dest_id, first_seq))
        first_seq += len(seqs)
    return events


def _stamp(topic: Topic, letter: Stored, deliveries: int, reason: str) -> Record:
    """The job as a dead letter: its own fields, and where it came from in ``meta``."""
    meta = provenance.stamp(letter.meta, Provenance(topic.name, letter.seq, deliveries, reason))
    return Record(data=letter.data, tag=letter.tag, node=letter.node, meta=meta)


def park(engine: Engine, topic: Topic, reasons: Mapping[int, str], *, now: int) -> int:
    """Take jobs out of circulation where they are, each with its reason; returns the batch."""
    return engine.commit_all(*((event, topic.id) for event in _parked(topic, reasons, now)), urgent=True)


def _parked(topic: Topic, reasons: Mapping[int, str], now: int) -> list[DeadLettered]:
    """The events that park jobs, one for each reason."""
    return [DeadLettered(now, topic.id, runs, "park", reason, 0) for runs, reason in _by_reason(reasons)]


def _by_reason(reasons: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """The jobs of each reason, as runs."""
    seqs: dict[str, list[int]] = {}
    for seq, reason in reasons.items():
        seqs.setdefault(reason, []).append(seq)
    return [(to_runs(same), reason) for reason, same in seqs.items()]


def redrive(
    engine: Engine,
    name: str,
    *,
    to: str | None = None,
    match: object = None,
    seqs: Sequence[int] | None = None,
    reason_like: str | None = None,
    limit: int | None = None,
    reset_deliveries: bool = True,
    reaches: Callable[[str], bool] | None = None,
) -> Answer[replies.Redriven]:
    """Put dead letters back to work: parked jobs of a queue in place, records of a dead-letter topic where they came
    from.

    ``to`` names another target; ``reaches`` tells which origins the caller may write to. Each job moves atomically, its
    provenance kept. One that cannot be read stays where it is. It stops before the first one that cannot move; where
    that is the very first, it raises why: NotFound for a target that is gone, Overloaded for one that is full.

    A job that ``block_and_dlq`` parked and copied is one job: whichever of the two is redriven into the queue, the
    parked one becomes claimable and the copy is removed, in one batch. With another ``to`` the copy alone moves.
    """
    topic = engine.state.topic(name)
    settings = engine.settings
    limit = settings.claim_max if limit is None else min(check_whole(limit, "limit", least=1), settings.records_max)
    check_flag(reset_deliveries, "reset_deliveries")
    check_reaches(reaches)
    if seqs is not None:
        check_seqs(seqs, count_max=settings.records_max, limit="records_max")
    if reason_like is not None:
        check_reason(reason_like, bytes_max=settings.reason_bytes_max)
    if to is not None:
        engine.state.topic(to)
        if to == name:
            raise Invalid("a topic cannot be redriven into itself")
    wanted = _Wanted(
        parse_match(match, bytes_max=settings.tag_bytes_max) if match is not None else None,
        set(seqs) if seqs is not None else None,
        reason_like,
        reaches,
    )
    now = engine.now()
    engine.pass_time(topic, now)
    if topic.queue is not None and to is None and topic.queue.parked:
        return _unpark(engine, topic, wanted, limit=limit, now=now, reset=reset_deliveries)
    return _send_back(engine, topic, wanted, to=to, limit=limit, now=now, reset=reset_deliveries)


class _Wanted:
    """Which dead letters a redrive is about."""

    def __init__(
        self,
        match: Any,
        seqs: set[int] | None,
        reason_like: str | None,
        reaches: Callable[[str], bool] | None,
    ) -> None:
        self.reaches = reaches
        self.match = match
        self.seqs = seqs
        self.reason_like = reason_like

    def takes(self, seq: int, tag: str | None, reason: str) -> bool:
        """Whether this one is."""
        if self.seqs is not None and seq not in self.seqs:
            return False
        if self.match is not None and not self.match.matches(tag):
            return False
        return self.reason_like is None or self.reason_like in reason


def _unpark(
    engine: Engine, topic: Topic, wanted: _Wanted, *, limit: int, now: int, reset: bool
) -> Answer[replies.Redriven]:
    assert topic.queue is not None
    seqs: list[int] = []
    for seq, reason in sorted(topic.queue.parked.items()):
        record = engine.reader.sift(topic, [seq, 1])[0] if wanted.match is not None else []
        if wanted.takes(seq, record[0].tag if record else None, reason):
            seqs.append(seq)
        if len(seqs) == limit:
            break
    batch, level = 0, Level.NOW
    if seqs:
        batch, level = _resume(engine, topic, seqs, now=now, reset=reset)
        engine.metrics.redriven += len(seqs)
    return Answer(replies.Redriven(topic.name, len(seqs), topic.name, seqs), batch, level, engine.gate)


def _resume(engine: Engine, topic: Topic, seqs: list[int], *, now: int, reset: bool) -> tuple[int, int]:
    """Make parked jobs claimable and remove their copies among the dead letters, in one batch."""
    engine.pass_time(topic, now)
    events: list[tuple[Event, int]] = [(Redriven(now, topic.id, to_runs(seqs), 0, reset), topic.id)]
    level = LEVELS[topic.config.durability]
    for letters, first, seq, count in _copies(engine, topic, seqs):
        engine.pass_time(letters, now)
        runs = [first, count]
        removed = Redriven(now, letters.id, runs, engine.reader.weigh(letters, runs), reset, topic.id, seq)
        events.append((removed, letters.id))
        level = max(level, LEVELS[letters.config.durability])
    batch = engine.commit_all(*events, urgent=True)
    engine.touched.add(topic)
    return batch, level


def _copies(engine: Engine, topic: Topic, seqs: list[int]) -> list[tuple[Topic, int, int, int]]:
    """The live copies of parked jobs, as runs that ascend on both sides: (topic, first letter, first job, count)."""
    assert topic.queue is not None
    found: list[tuple[Topic, int, int, int]] = []
    for seq in seqs:
        copy = topic.queue.copies.get(seq, 0)
        letters, letter = engine.state.by_id.get(copy >> 64), copy & _LOW
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
    engine: Engine, topic: Topic, wanted: _Wanted, *, to: str | None, limit: int, now: int, reset: bool
) -> Answer[replies.Redriven]:
    held = topic.queue.in_flight if topic.queue is not None else {}
    batch, level, moved, targets = 0, Level.NOW, list[int](), set[str]()
    for letter, origin in _letters(engine, topic):
        if letter.seq in held or not wanted.takes(letter.seq, letter.tag, origin.reason):
            continue
        target = to or origin.topic
        if target == topic.name:
            continue  # back at work here already
        if wanted.reaches is not None and not wanted.reaches(target):
            continue  # anybody may write any origin into a letter
        try:
            batch, target_level = _move(engine, topic, letter, target, origin=origin, now=now, reset=reset)
        except (NotFound, Overloaded):
            if moved:
                break
            raise
        level = max(level, target_level, LEVELS[topic.config.durability])
        moved.append(letter.seq)
        targets.add(target)
        if len(moved) == limit:
            break
    engine.metrics.redriven += len(moved)
    reply = replies.Redriven(topic.name, len(moved), ",".join(sorted(targets)) or (to or ""), moved)
    return Answer(reply, batch, level, engine.gate)


def _letters(engine: Engine, topic: Topic) -> Iterator[tuple[Stored, Provenance]]:
    """The dead letters of a topic that can be read, with their provenance, from the oldest on, a window at a time."""
    lo = topic.floor
    while lo <= topic.visible_seq:
        hi = min(lo + _WINDOW, topic.visible_seq + 1)
        letters, _ = engine.reader.sift(topic, topic.live_runs(lo, hi))
        for letter in letters:
            origin = provenance.read(letter.meta)
            if origin is not None:
                yield letter, origin
        lo = max(hi, topic.floor)


def _move(
    engine: Engine, topic: Topic, letter: Stored, target_name: str, *, origin: Provenance, now: int, reset: bool
) -> tuple[int, int]:
    target = engine.state.topics.get(target_name)
    if target is None:
        raise NotFound(
            f"dead letter {letter.seq} came from {shown(target_name)}, which is gone: name another target",
            code="topic_not_found",
            topic=target_name,
        )
    # The link is the queue's own: a letter that somebody else wrote cannot un-park anything.
    if target.queue is not None and target.queue.copies.get(origin.seq) == topic.id << 64 | letter.seq:
        return _resume(engine, target, [origin.seq], now=now, reset=reset)
    seq = target.head_seq + 1
    record = Record(data=letter.data, tag=letter.tag, node=letter.node, meta=letter.meta)
    appended = engine.appended(target.id, seq, [record], now=now, moved_from=topic.id)
    check_topic_room(target, target.config, records=1, size=len(appended.blobs))
    if not reset and origin.deliveries and target.queue is not None:
        extra = msgspec.structs.replace(appended.extra or AppendExtra(), deliveries=[seq, origin.deliveries])
        appended = msgspec.structs.replace(appended, extra=extra)
    size = engine.reader.weigh(topic, [letter.seq, 1])
    removed = Redriven(now, topic.id, [letter.seq, 1], size, reset, target.id, seq)
    batch = engine.commit_all((appended, target.id), (removed, topic.id), urgent=True)
    evict_over_cap(engine, target, now)
    return batch, LEVELS[target.config.durability]
