"""Dead-letter jobs that failed too often: move them, park them, or both; in one log batch with their removal."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from tenure.contract import provenance
from tenure.contract.config import TopicConfig, intern_config
from tenure.contract.provenance import Provenance
from tenure.contract.records import Record, Stored
from tenure.core.decide.decision import Payloads, Steps, append_fitting
from tenure.core.decide.evict import evict_over_cap
from tenure.core.decide.limits import check_not_retired
from tenure.core.events import DeadLettered, Event, TopicPut
from tenure.core.level import LEVELS, Level
from tenure.core.ready_jobs import LETTERS_MAX
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import count, to_runs
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import NotFound

__all__ = ["dead_letter", "first_part", "park_events", "worn_reason"]

SPENT: Final = "max_deliveries"
"""The reason of a dead letter that was never given back with one."""


def dead_letter(
    state: State, topic: Topic, seqs: list[int], now_ms: int, payloads: Payloads, *, reason: str | None = None
) -> Steps[int]:
    """Apply the queue's strategy to these jobs; returns the level that an answer about it waits for.

    ``skip`` moves them to the dead-letter topic (with none: removes them), ``block`` parks them, ``block_and_dlq``
    does both. A dead-letter topic that is full or may not be created, or a record that cannot be read, parks the job
    instead: it is never lost. Without a ``reason`` each job has one of its own: the workers that were lost with it,
    else the last reason that it was given back with, else ``max_deliveries``.
    """
    config, queue = topic.config, topic.queue
    assert queue is not None
    dest_name = config.dead_letter if config.dlq_strategy != "block" else None
    level = LEVELS[config.durability]
    left = sorted(set(seqs))
    while left:
        part = first_part(state, topic, left, payloads)
        left = left[len(part) :]
        reasons = {seq: reason or _why_spent(queue, seq) for seq in part}
        if dest_name is not None:
            level = max(level, (yield from _post(state, topic, reasons, dest_name, now_ms, payloads)))
        elif config.dlq_strategy == "skip":
            yield _drop_events(topic, reasons, now_ms, payloads)
        else:
            yield park_events(topic, reasons, now_ms)
    return level


def first_part(state: State, topic: Topic, seqs: list[int], payloads: Payloads) -> list[int]:
    """Return as many of these ascending live seqs as one batch of the log holds."""
    part = seqs[:LETTERS_MAX]
    return part[: count(payloads.fitting(topic, to_runs(part), state.settings.step_bytes_max))]


def _why_spent(queue: Queue, seq: int) -> str:
    """Return why a job has no try left: its workers that were lost, else the last reason that it was given back with,
    else only that there were too many.
    """
    ended, past = queue.deliveries_ended, queue.suspects.pasts.get(seq)
    if not past.begun:
        return ended.last_reason(seq, but=("lost", "returned")) or SPENT
    last = next((delivery for delivery in reversed(ended.get(seq, ())) if delivery.end == "lost"), None)
    times = "once" if past.begun == 1 else f"{past.begun} times"
    named = "" if last is None else f" (last: {last.node}{'' if last.reason is None else ', ' + last.reason})"
    return f"its worker was lost {times} while running it{named}"


def worn_reason(queue: Queue, seq: int) -> str:
    """Return why a job is parked that takes no try, but no worker has ever kept."""
    return f"its worker was lost {queue.suspects.pasts.get(seq).lost} times before it began this job"


def _drop_events(topic: Topic, reasons: Mapping[int, str], now_ms: int, payloads: Payloads) -> list[Event]:
    return [
        DeadLettered(now_ms, topic.id, runs, "drop", reason, payloads.weigh(topic, runs))
        for runs, reason in _by_reason(reasons)
    ]


def _post(
    state: State, topic: Topic, reasons: Mapping[int, str], dest_name: str, now_ms: int, payloads: Payloads
) -> Steps[int]:
    """Append the jobs to the dead-letter topic and take them out of the queue, in one batch; park those that cannot be
    read, and those for which it has no room.
    """
    queue, dest = topic.queue, state.topics.get(dest_name)
    assert queue is not None
    config = dest.config if dest is not None else intern_config(TopicConfig(durability=topic.config.durability))
    dest_id, first_seq = (dest.id, dest.head_seq + 1) if dest is not None else (state.next_topic_id, 1)
    try:
        if dest is None:
            check_not_retired(state, dest_name)
    except NotFound as error:
        yield park_events(topic, {seq: f"{reason}; {error.message}" for seq, reason in reasons.items()}, now_ms)
        return Level.WRITTEN
    letters, lost = payloads.readable(topic, to_runs(reasons))
    parked = {seq: f"{reasons[seq]}; unreadable: {error.message}" for seq, error in lost.items()}
    records = [_stamp(topic, letter, queue, reasons[letter.seq]) for letter in letters]
    written_ms = max(now_ms, state.log_ms)  # a command may be judged as of an earlier time, but no letter is older
    appended, full = append_fitting(
        state, dest, config, dest_id, first_seq, records, now_ms=written_ms, moved_from=topic.id
    )
    if full is not None:
        room = 0 if appended is None else appended.count
        parked.update({letter.seq: f"{reasons[letter.seq]}; {full.message}" for letter in letters[room:]})
        letters = letters[:room]
    if appended is None or not letters:
        yield park_events(topic, parked, now_ms)
        return Level.WRITTEN
    events: list[Event] = [appended]
    if dest is None:
        events.insert(0, TopicPut(written_ms, dest_id, dest_name, config, implicit=True))
    moved = {letter.seq: reasons[letter.seq] for letter in letters}
    events += _move_events(topic, moved, dest_id, first_seq, now_ms=now_ms, payloads=payloads)
    events += park_events(topic, parked, now_ms)
    yield events
    if (dest := state.by_id.get(dest_id)) is not None:  # else it was deleted between two steps
        yield from evict_over_cap(state, dest, written_ms, payloads)
    return LEVELS[config.durability]


def _move_events(
    topic: Topic, reasons: Mapping[int, str], dest_id: int, first_seq: int, *, now_ms: int, payloads: Payloads
) -> list[Event]:
    """Return the events that take jobs out of the queue, in the order of their letters: one per stretch of jobs with
    the same reason.
    """
    move = topic.config.dlq_strategy == "skip"
    events: list[Event] = []
    for reason, stretch in groupby(reasons, key=reasons.__getitem__):
        seqs = list(stretch)
        runs = to_runs(seqs)
        size = payloads.weigh(topic, runs) if move else 0
        action = "move" if move else "copy"
        events.append(DeadLettered(now_ms, topic.id, runs, action, reason, size, dest_id, first_seq))
        first_seq += len(seqs)
    return events


def _stamp(topic: Topic, letter: Stored, queue: Queue, reason: str) -> Record:
    """Return the job as a dead letter: its own fields, with its provenance in ``meta``. One that its holder rejects has
    a verdict, which clears its losses.
    """
    deliveries = queue.deliveries.get(letter.seq, 1)
    lost = 0 if letter.seq in queue.in_flight else queue.suspects.pasts.get(letter.seq).lost
    tries = queue.tries(letter.seq) if letter.seq in queue.suspects.pasts.jobs else deliveries
    origin = Provenance(topic.name, letter.seq, deliveries, reason, lost, tries if tries < deliveries else 0)
    meta = provenance.stamp(letter.meta, origin)
    return Record(data=letter.data, tag=letter.tag, node=letter.node, meta=meta)


def park_events(topic: Topic, reasons: Mapping[int, str], now_ms: int) -> list[Event]:
    """Return the events that park jobs, one for each reason."""
    return [DeadLettered(now_ms, topic.id, runs, "park", reason, 0) for runs, reason in _by_reason(reasons)]


def _by_reason(reasons: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Return the jobs of each reason, as runs."""
    seqs: dict[str, list[int]] = {}
    for seq, reason in reasons.items():
        seqs.setdefault(reason, []).append(seq)
    return [(to_runs(same), reason) for reason, same in seqs.items()]
