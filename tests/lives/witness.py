"""A second, naive opinion on the log: every event is looked at as it is appended, and what it may not do is said.

It knows nothing of the engine's fold. Jobs are objects in dicts, time is compared and never planned, and the whole list
of events is kept, so that a crash is answered by cutting the list and starting again.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tenure.contract.config import TopicConfig
from tenure.core import events as e
from tenure.core.backoff import delay_ms
from tenure.core.records import ends_of, slice_blob, unpack
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.core.state.suspects import REDRIVEN_LOST_MAX
from tenure.core.state.topic import Topic
from tenure.log.interface import Log
from tests.lives.anomaly import Anomaly

__all__ = ["FRAMES_PER_TURN_MAX", "Job", "Noted", "Witness"]

FRAMES_PER_TURN_MAX = 1_000
"""Events in one turn of the loop: far more than the commands of a turn, and what they set off, can ask for."""

LOOKS_PER_TURN_MAX = 50_000
"""How often the broker may look at its clock in one turn, likewise."""


class Job(msgspec.Struct):
    """One live record. ``set_by`` is the event that last gave it a deadline, ``born`` the one that appended it.

    ``data`` is None once the disk has lost it.
    """

    data: bytes | None
    born: int
    lease: int = 0
    node: str = ""
    deadline: int = 0
    deliveries: int = 0
    is_parked: bool = False
    due: int = 0
    wall_due: int = 0
    set_by: int = 0
    #: What may die together with its holder, where the lease isolates, and the opening of the log that gave it.
    group: str = ""
    epoch: int = 0
    #: When its worker began it, and how much later it comes back if it is lost.
    begun: tuple[int, int] | None = None
    #: Deliveries that were no tries; losses since the last verdict; and those of them while it was begun.
    spared: int = 0
    lost: int = 0
    lost_begun: int = 0

    @property
    def tries(self) -> int:
        """How many deliveries count."""
        return self.deliveries - self.spared

    def let_go(self) -> None:
        """Its delivery is over."""
        self.lease, self.group, self.begun = 0, "", None

    def lose(self, at_ms: int) -> None:
        """Its worker is gone: a try only where it was begun."""
        self.lost += 1
        if self.begun is None:
            self.spared += 1
        else:
            self.lost_begun += 1
            self.due = at_ms + self.begun[1]
        self.let_go()

    def judge(self) -> None:
        """Its holder, or who reads its dead letter, knows now what became of it."""
        self.lost = self.lost_begun = 0

    def is_held(self, now: int) -> bool:
        """Whether a lease on it is alive."""
        return bool(self.lease) and self.deadline >= now


class Noted(NamedTuple):
    """An event and the batch it joined."""

    batch: int
    event: e.Event


class _Topic(msgspec.Struct):
    name: str
    config: TopicConfig
    jobs: dict[int, Job] = {}
    head: int = 0
    #: The index of the event that set the config.
    configured_by: int = 0

    @property
    def deliveries_max(self) -> int:
        config = self.config
        return 0 if config.dlq_strategy == "skip" and config.dead_letter is None else config.max_deliveries


class Witness:
    """Listens to one engine after the other; ``log`` is the one that is open."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.topics: dict[int, _Topic] = {}
        self.wall_offset_ms = 0
        self.epoch = self.log_ms = 0
        self.log: Log | None = None
        self.turn_count = 0
        self.looks_count = 0

    def new_turn(self, *, more: int = 0) -> None:
        """Start counting again; ``more`` events than usual may come."""
        self.turn_count = self.looks_count = -more

    def look_up(self) -> None:
        """Somebody asks the engine for the time; raises Anomaly where that never ends."""
        self.looks_count += 1
        if self.looks_count > LOOKS_PER_TURN_MAX:
            raise Anomaly("spin", f"the time is asked for {self.looks_count} times in one turn of the loop")

    def __call__(self, event: e.Event) -> None:
        """Take in an event that was just appended; raises Anomaly where it may not be."""
        assert self.log is not None
        self.turn_count += 1
        if self.turn_count > FRAMES_PER_TURN_MAX:
            kind = type(event).__name__
            raise Anomaly("spin", f"{self.turn_count} events in one turn of the loop, the last one {kind}")
        self._take(Noted(self.log.pending_batch, event))

    def rewound(self, batch: int) -> Witness:
        """Return a witness of the same events up to a batch: all that a crash has left."""
        other = Witness()
        for noted in self.noted:
            if noted.batch > batch:
                break
            other._take(noted)
        return other

    def _take(self, noted: Noted) -> None:
        self.noted.append(noted)
        event = noted.event
        topic = self.topics.get(getattr(event, "topic", 0))
        if isinstance(event, e.Opened):
            self._end_epoch(event)
        self.log_ms = max(self.log_ms, event.at_ms)
        if topic is not None:
            self._expire(topic, event.at_ms)
        match event:
            case e.Opened() | e.ClockSet():
                self._set_clock(event)
            case e.TopicPut():
                if event.created:
                    self.topics[event.topic] = _Topic(event.name, event.config, {})
                else:
                    self.topics[event.topic].config = event.config
                self.topics[event.topic].configured_by = len(self.noted) - 1
            case e.TopicDeleted():
                del self.topics[event.topic]
            case e.RouterMoved() if event.missed and event.dest in self.topics:
                self.topics[event.dest].head += 1
            case _ if topic is not None:
                self._take_on(topic, event)

    def _set_clock(self, event: e.Opened | e.ClockSet) -> None:
        for topic in self.topics.values():
            for job in topic.jobs.values():
                if job.wall_due <= event.at_ms + self.wall_offset_ms:
                    job.wall_due = 0
        self.wall_offset_ms = event.wall_offset_ms

    def _end_epoch(self, event: e.Opened) -> None:
        """What ran out by the end of the log did so while a broker had it open."""
        for topic in self.topics.values():
            self._expire(topic, self.log_ms)
        self.epoch = event.epoch

    def _expire(self, topic: _Topic, now: int) -> None:
        backoff = topic.config.retry_backoff
        for seq, job in topic.jobs.items():
            if job.lease and job.deadline < now:
                if job.group and job.epoch == self.epoch:
                    job.lose(job.deadline)
                elif job.group:
                    job.spared += 1
                elif backoff is not None:
                    job.due = job.deadline + delay_ms(backoff, deliveries=job.tries, seq=seq)
                job.let_go()

    def _take_on(self, topic: _Topic, event: e.Event) -> None:
        match event:
            case e.Appended():
                self._append(topic, event)
            case e.Claimed():
                self._claim(topic, event)
            case e.Acked():
                for seq in each(event.runs):
                    job = self._remove(topic, seq, "acked")
                    if not job.is_held(event.at_ms) or job.node != event.node:
                        raise Anomaly(
                            "ack", f"seq {seq} of {topic.name} is acked by {event.node}, which does not hold it"
                        )
            case e.Extended():
                for job in self._held(topic, event.runs, event.at_ms, "extended"):
                    job.deadline, job.set_by = event.deadline_ms, len(self.noted) - 1
            case e.Released():
                dues = iter(event.dues_ms or ())
                for job in self._held(topic, event.runs, event.at_ms, "released"):
                    job.due = next(dues, event.due_ms)
                    if event.cause == "nack":
                        job.judge()
                    else:
                        job.spared += bool(job.group)
                    job.let_go()
            case e.Returned():
                for job in self._held(topic, event.runs, event.at_ms, "returned"):
                    job.due = event.due_ms
                    job.spared += 1
                    job.let_go()
            case e.Lost():
                for job in self._held(topic, event.runs, event.at_ms, "lost"):
                    job.lose(event.at_ms)
            case e.Begun():
                self._begin(topic, event)
            case e.Deleted():
                for seq in each(event.runs):
                    self._remove(topic, seq, "deleted")
            case e.Evicted():
                for seq in each(event.runs):
                    job = self._remove(topic, seq, "evicted")
                    if job.is_held(event.at_ms) or job.is_parked:
                        raise Anomaly("evicted", f"seq {seq} of {topic.name} is evicted while it is held or parked")
            case e.DeadLettered():
                self._bury(topic, event)
            case e.Redriven():
                self._redrive(topic, event)
            case e.Carried():
                self._check_carried(topic, event)

    def _append(self, topic: _Topic, event: e.Appended) -> None:
        if event.first_seq != topic.head + 1:
            raise Anomaly("seqs", f"{topic.name} goes on at {event.first_seq} after {topic.head}")
        for index, data in enumerate(_payloads(event.ends, event.blobs, event.plain)):
            topic.jobs[event.first_seq + index] = Job(data, len(self.noted) - 1)
        topic.head = event.first_seq + event.count - 1
        extra = event.extra
        if extra is not None and topic.config.type == "queue":
            for name, pairs in (
                ("due", extra.delays),
                ("wall_due", extra.wall_delays),
                ("deliveries", extra.deliveries),
                ("lost", extra.losses),
            ):
                for seq, value in zip(pairs[::2], pairs[1::2], strict=True):
                    setattr(topic.jobs[seq], name, value)

    def _claim(self, topic: _Topic, event: e.Claimed) -> None:
        wall, limit = event.at_ms + self.wall_offset_ms, topic.deliveries_max
        self._check_suspects(topic, event)
        for seq in each(event.runs):
            job = topic.jobs.get(seq)
            where = f"seq {seq} of {topic.name}"
            if job is None:
                raise Anomaly("claim", f"{where} is claimed, but it is not there")
            if job.is_held(event.at_ms):
                raise Anomaly("overlap", f"{where} is claimed for {event.node} while {job.node} holds it")
            if job.is_parked or job.due > event.at_ms or job.wall_due > wall:
                raise Anomaly("claim", f"{where} is claimed, but it is parked or not due: {job}")
            if limit and job.tries >= limit:
                raise Anomaly("deliveries", f"{where} is tried for the {job.tries + 1}th time of {limit}")
            job.group, job.epoch = event.group if isinstance(event, e.ClaimedIsolated) else "", self.epoch
            job.lease, job.node, job.deadline = event.lease, event.node, event.deadline_ms
            job.deliveries, job.due, job.wall_due, job.set_by = job.deliveries + 1, 0, 0, len(self.noted) - 1

    def _check_suspects(self, topic: _Topic, event: e.Claimed) -> None:
        """Who asks for suspects gets nothing else, and another claim that isolates one of them at most."""
        lost = [seq for seq in each(event.runs) if seq in topic.jobs and topic.jobs[seq].lost]
        where = f"{list(each(event.runs))} of {topic.name}"
        if isinstance(event, e.ClaimedIsolated):
            if event.only_suspects and lost != list(each(event.runs)):
                raise Anomaly("suspects", f"{where} are claimed as suspects, and only {lost} are")
            if not event.only_suspects and len(lost) > 1:
                raise Anomaly("suspects", f"{where} are claimed together, and {lost} are suspects")

    def _begin(self, topic: _Topic, event: e.Begun) -> None:
        for job in self._held(topic, event.runs, event.at_ms, "begun"):
            if not job.group or job.node != event.node:
                raise Anomaly("begin", f"{event} of {topic.name}, which is held so: {job}")
            if not event.is_over and any(other.begun for other in self._group(job.group, event.at_ms)):
                raise Anomaly("begin", f"{event} of {topic.name}, and group {job.group} has another job begun")
            job.begun = None if event.is_over else (event.at_ms, event.retry_ms)

    def _group(self, group: str, now: int) -> list[Job]:
        """The jobs that a group of workers holds."""
        jobs = [job for topic in self.topics.values() for job in topic.jobs.values()]
        return [job for job in jobs if job.group == group and job.is_held(now)]

    def _held(self, topic: _Topic, runs: list[int], now: int, what: str) -> list[Job]:
        jobs = [topic.jobs.get(seq) for seq in each(runs)]
        if not all(job is not None and job.is_held(now) for job in jobs):
            raise Anomaly("lease", f"seqs {list(each(runs))} of {topic.name} are {what}, but not all are held")
        return [job for job in jobs if job is not None]

    def _remove(self, topic: _Topic, seq: int, what: str) -> Job:
        job = topic.jobs.pop(seq, None)
        if job is None:
            raise Anomaly("removed", f"seq {seq} of {topic.name} is {what}, but it is not there")
        return job

    def _bury(self, topic: _Topic, event: e.DeadLettered) -> None:
        seqs = list(each(event.runs))
        for seq in seqs:
            self._check_spent(topic, seq, event)
        if event.action in ("move", "copy"):
            self._check_copies(topic, seqs, event.dest, event.dest_seq)
        if event.action in ("move", "drop"):
            for seq in seqs:
                self._remove(topic, seq, "dead-lettered")
            return
        for seq in seqs:
            job = topic.jobs[seq]
            if job.is_held(event.at_ms):
                job.judge()
            job.let_go()
            job.is_parked, job.due, job.wall_due = True, 0, 0

    def _check_spent(self, topic: _Topic, seq: int, event: e.DeadLettered) -> None:
        """No job is dead because of others: it was tried too often, or lost too often, or its holder says so."""
        job, limit = topic.jobs.get(seq), topic.deliveries_max
        if job is None or job.is_held(event.at_ms):
            return
        is_spent = bool(limit) and job.tries >= limit
        if event.reason.startswith("its worker was lost"):
            is_worn = "before it began" in event.reason and not job.lost_begun
            is_fair = f"lost {job.lost} times" in event.reason if is_worn else is_spent and job.lost_begun > 0
        else:
            is_fair = is_spent or event.reason != "max_deliveries"
        if not is_fair:
            raise Anomaly("healthy", f"seq {seq} of {topic.name} is dead for {event.reason!r}, and it is {job}")

    def _redrive(self, topic: _Topic, event: e.Redriven) -> None:
        seqs = list(each(event.runs))
        if event.dest:
            self._check_copies(topic, seqs, event.dest, event.dest_seq)
            for seq in seqs:
                self._remove(topic, seq, "redriven")
            return
        for seq in seqs:
            job = topic.jobs[seq]
            if not job.is_parked:
                raise Anomaly("redrive", f"seq {seq} of {topic.name} is redriven, but it is not parked")
            job.is_parked = False
            if event.reset_deliveries:
                job.deliveries = job.spared = job.lost_begun = 0
                job.lost = min(job.lost, REDRIVEN_LOST_MAX)

    def _check_copies(self, topic: _Topic, seqs: list[int], dest: int, dest_seq: int) -> None:
        for index, seq in enumerate(seqs):
            copy = self.topics[dest].jobs.get(dest_seq + index)
            if copy is None or topic.jobs[seq].data not in (None, copy.data):
                raise Anomaly("letters", f"seq {seq} of {topic.name} leaves it, and is not in topic {dest}")

    def _check_carried(self, topic: _Topic, event: e.Carried) -> None:
        if getattr(event, "lost", None) is not None:
            for seq in event.seqs:
                if seq in topic.jobs:
                    topic.jobs[seq].data = None
            return
        for seq, data in zip(event.seqs, _payloads(event.ends, event.blobs, event.plain), strict=True):
            job = topic.jobs.get(seq)
            if job is not None and job.data not in (None, data):
                raise Anomaly("carried", f"seq {seq} of {topic.name} is rewritten as something else")

    # Comparing with the engine

    def compare(self, state: State, now: int) -> None:
        """Raise Anomaly where the engine's state says something else; neither side is changed."""
        if state.by_id.keys() != self.topics.keys():
            raise Anomaly("state", f"topics are {sorted(state.by_id)}, by the log they are {sorted(self.topics)}")
        for topic_id, topic in state.by_id.items():
            known = self.topics[topic_id]
            live = list(each(topic.live_runs(topic.floor, topic.head_seq + 1)))
            if live != sorted(known.jobs) or topic.head_seq != known.head:
                raise Anomaly("state", f"{topic.name} holds {live}, by the log it is {sorted(known.jobs)}")
            if topic.queue is not None:
                self._compare_queue(topic, known, now)

    def _compare_queue(self, topic: Topic, known: _Topic, now: int) -> None:
        queue = topic.queue
        assert queue is not None
        for seq, job in known.jobs.items():
            lease = queue.holder(seq)
            where = f"seq {seq} of {topic.name}"
            if job.is_held(now) and (lease is None or (lease.number, lease.deadline_ms) != (job.lease, job.deadline)):
                raise Anomaly("state", f"{where} is held until {job.deadline} by the log, by the state: {lease}")
            if lease is not None and not job.is_held(now) and queue.next_change_ms > now:
                raise Anomaly("immortal", f"the lease on {where} ended at {job.deadline}, and nothing will end it")
            past = queue.suspects.pasts.get(seq)
            is_settled = queue.next_change_ms > now and (not job.lease or job.is_held(now))
            if is_settled and past != (job.spared, job.lost, job.lost_begun):
                raise Anomaly("state", f"{where}: its past is {past}, by the log {job}")
            if job.is_held(now) and queue.suspects.begun.get(seq) != job.begun:
                raise Anomaly("state", f"{where}: begun is {queue.suspects.begun.get(seq)}, by the log {job.begun}")
            if (seq in queue.parked) != job.is_parked:
                raise Anomaly("state", f"{where}: parked is {seq in queue.parked}, by the log {job.is_parked}")


def _payloads(ends: bytes, blobs: bytes, plain: bool) -> list[bytes]:
    table = ends_of(ends, len(blobs))
    view = memoryview(blobs)
    return [bytes(unpack(slice_blob(table, view, index), plain)[0]) for index in range(len(table))]
