"""What the broker's own log says about each job: which leases covered it, and how each of them ended.

It is a second, much smaller reading of the log than the broker's fold, so that the two can disagree. A lease ends by an
ack, a nack or a broken connection, all of which are events; or by its deadline, which is a rule: the next claim must
then come later than that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tenure.contract.records import lease_id
from tenure.core.events import (
    Acked,
    Appended,
    Claimed,
    DeadLettered,
    Event,
    Extended,
    Lost,
    Opened,
    Released,
    Returned,
    TopicPut,
    decode,
)
from tenure.core.state.ranges import each
from tenure.log.disk import PosixDisk
from tenure.log.recovery import Scan
from tenure.log.segment import list_heads

__all__ = ["Held", "Logged", "LoggedQueue", "read_log"]


class Held:
    """One lease on one job, in log time. ``how`` is None while it lives."""

    def __init__(self, claim: Claimed, deliveries: int) -> None:
        self.lease = lease_id(claim.lease)
        self.node = claim.node
        self.deliveries = deliveries
        self.at = claim.at_ms
        self.first_deadline = self.deadline = claim.deadline_ms
        self.extends: list[tuple[int, int]] = []
        self.ended_at = 0
        self.how: str | None = None

    def end(self, how: str, at: int) -> None:
        self.how, self.ended_at = how, at


class LoggedQueue:
    """The jobs of one queue by seq: every lease on each, in the order of the log. ``problems`` must stay empty."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.appended = 0
        self.held: dict[int, list[Held]] = defaultdict(list)
        self.problems: list[str] = []

    def take(self, event: Event) -> None:
        match event:
            case Appended():
                self.appended += event.count
            case Claimed():
                for seq in each(event.runs):
                    self._claim(seq, event)
            case Extended():
                for seq in each(event.runs):
                    if (held := self._live(seq, event)) is not None:
                        held.extends.append((event.at_ms, event.deadline_ms))
                        held.deadline = event.deadline_ms
            case Acked() | Released():
                for seq in each(event.runs):
                    if (held := self._live(seq, event)) is not None:
                        held.end(event.cause if isinstance(event, Released) else "acked", event.at_ms)
            case Returned():
                for seq in each(event.runs):
                    if (held := self._live(seq, event)) is not None:
                        held.end("returned", event.at_ms)
            case Lost():
                for seq in each(event.runs):
                    self._lose(seq, event)
            case DeadLettered():
                for seq in each(event.runs):
                    self._give_up(seq, event)
            case _:
                pass

    def _claim(self, seq: int, event: Claimed) -> None:
        leases = self.held[seq]
        if leases and leases[-1].how is None:
            before = leases[-1]
            if event.at_ms <= before.deadline:
                self.problems.append(
                    f"{seq} claimed at {event.at_ms}, though {before.lease} runs until {before.deadline}"
                )
            before.end("expired", before.deadline)
        elif leases and leases[-1].how == "acked":
            self.problems.append(f"{seq} claimed at {event.at_ms}, though it was acked at {leases[-1].ended_at}")
        leases.append(Held(event, len(leases) + 1))

    def _give_up(self, seq: int, event: DeadLettered) -> None:
        """By a nack of its holder, or once its last lease has ended in any way but an ack."""
        leases = self.held[seq]
        if not leases or leases[-1].how == "acked":
            self.problems.append(f"{event!r} is about {seq}, which was never held, or acked")
        elif leases[-1].how is None:
            held = leases[-1]
            if event.at_ms <= held.deadline:
                held.end("dead", event.at_ms)
            else:
                held.end("expired", held.deadline)

    def _lose(self, seq: int, event: Lost) -> None:
        """After a grace, or once the lease has run out."""
        held = self.held[seq][-1] if self.held[seq] else None
        if held is None or held.how is not None or held.node != event.node:
            self.problems.append(f"{event!r} is about {seq}, which its node did not hold")
        elif event.at_ms <= held.deadline:
            held.end("lost", event.at_ms)
        else:
            held.end("expired", held.deadline)

    def _live(self, seq: int, event: Acked | Released | Returned | Extended) -> Held | None:
        """The lease that an event is about; there must be one, and it must not have run out."""
        leases = self.held[seq]
        held = leases[-1] if leases else None
        if held is None or held.how is not None or event.at_ms > held.deadline:
            self.problems.append(f"{event!r} is about {seq}, which nobody held then")
            return None
        if event.node != held.node:
            self.problems.append(f"{event!r} is about {seq}, which {held.node} held")
        return held


def _events(home: Path) -> Iterator[Event]:
    disk = PosixDisk(home, create=False)
    heads = list_heads(disk)
    assert heads[0].number == 1, "the log is whole: nothing was dropped at its start"
    for kind, _, _, body in Scan(disk, heads).frames():
        yield decode(kind, body)


class Logged:
    """A whole log: its queues by name, and from when to when no broker was there to write it."""

    def __init__(self) -> None:
        self.queues: dict[str, LoggedQueue] = {}
        self.outages: list[tuple[int, int]] = []

    def held(self, queue: str, seq: int, lease: str) -> Held | None:
        """One lease on one job."""
        return next((held for held in self.queues[queue].held[seq] if held.lease == lease), None)

    def was_there(self, held: Held) -> bool:
        """Whether the broker could be reached all the time that a lease ran."""
        return not any(held.at <= back and gone <= held.deadline for gone, back in self.outages)

    @property
    def problems(self) -> list[str]:
        return [f"{queue.name}: {problem}" for queue in self.queues.values() for problem in queue.problems]


def read_log(home: Path) -> Logged:
    """The log of a data directory whose broker has ended."""
    logged, by_id, last_at = Logged(), dict[int, LoggedQueue](), 0
    for event in _events(home):
        if isinstance(event, TopicPut):
            by_id[event.topic] = logged.queues.setdefault(event.name, LoggedQueue(event.name))
        elif isinstance(event, Opened):
            logged.outages.append((last_at, event.at_ms))
        elif (queue := by_id.get(getattr(event, "topic", 0))) is not None:
            queue.take(event)
        last_at = event.at_ms
    return logged
