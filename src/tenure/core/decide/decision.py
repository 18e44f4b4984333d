"""The forms of a decision, a tuple or a generator of steps, and the payloads that it may read.

Most decisions are known at once: a tuple of events, reply and level. One that must see its own effects (a claim after
it has buried poisoned jobs), or that may touch a million jobs, is a generator. It yields the events of one log batch,
at most a bounded number of jobs at a time, and is resumed on the folded state with the time that it is then. Where the
log cannot take a batch, the error is raised at the yield: a decision may go on without it, or let it through.

A decision only reads. Before the broker asks for one it lets time pass on the topic of the command (`PASSES`); what
needs the present of another topic yields `Pass`. "Not yet" is a value too: `Behind` a past that is longer than a step,
or `Refused` by records that a crash may still take back.

An empty batch is a pause. Other commands may run before a step is resumed, where the broker takes the steps in several
turns of its loop (`STEPPED` has those commands): such a decision looks at the state again after each of its steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from tenure.contract.config import TopicConfig
from tenure.contract.records import Record, Stored
from tenure.core.decide.limits import check_topic_room, room_for
from tenure.core.events import Appended, AppendExtra, Event
from tenure.core.records import ends_of, pack
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, Corrupt, Overloaded

__all__ = [
    "Behind",
    "Decided",
    "Decision",
    "ForgetKeys",
    "Pass",
    "Payloads",
    "Refused",
    "Step",
    "Steps",
    "append_copies",
    "append_fitting",
    "present",
    "until_present",
]

T = TypeVar("T")

Decision: TypeAlias = tuple[Event | list[Event] | None, T, int]
"""One event, several that one batch holds or none of them, or None; the reply; and the level it waits for.

Without an event a level above NOW waits for everything that is logged so far: the reply repeats an earlier one.
"""


class Behind(msgspec.Struct, frozen=True):
    """Not yet: more leases, delays or TTLs of a topic have ended than one step ends. Run the command when it has caught
    up.
    """

    topic: Topic


class Refused(msgspec.Struct, frozen=True):
    """Not yet: refused because of records that have not reached the ``level`` which their own answer waits for.

    A caller takes "appended before" for success, and until they have, a crash or a lost lead may take them back.
    """

    error: Conflict
    level: int


class Pass(msgspec.Struct, frozen=True):
    """A step: let log time reach ``until_ms`` on a topic, as far as one step goes."""

    topic: Topic
    until_ms: int


class ForgetKeys(msgspec.Struct, frozen=True):
    """A step: forget idempotency keys whose time has passed, because as many are held as may be."""


Step: TypeAlias = list[Event] | Pass | ForgetKeys
Steps: TypeAlias = Generator[Step, int, T]
"""Batches of events, one after the other, each answered with the time; returns the result."""
Decided: TypeAlias = Decision[T] | Steps[tuple[T, int] | Behind | Refused] | Refused
"""A decision in any of its forms; the steps return the reply and its level, or not yet."""


def present(topic: Topic, now_ms: int) -> Steps[bool]:
    """Let time pass on a topic by one step where it must; return whether it has reached the present."""
    if topic.is_due(now_ms):
        yield Pass(topic, now_ms)
    return not topic.is_due(now_ms)


def until_present(*topics: Topic, now_ms: int) -> Steps[int]:
    """Let all of the past of topics end, in as many steps as that takes; returns the time that it is then."""
    while (due := next((topic for topic in topics if topic.is_due(now_ms)), None)) is not None:
        now_ms = yield Pass(due, now_ms)
    return now_ms


class Payloads(Protocol):
    """The records of topics by seq, in memory or on disk."""

    def records(self, topic: Topic, runs: list[int]) -> list[Stored]:
        """Return the records of live seqs, ascending. Raises Corrupt where one cannot be read."""

    def readable(self, topic: Topic, runs: list[int]) -> tuple[list[Stored], dict[int, Corrupt]]:
        """Return the records that can be read, ascending, and the error of each of the others."""

    def fitting(self, topic: Topic, runs: list[int], bytes_max: int) -> list[int]:
        """Return the longest prefix of these live seqs whose records take at most so many bytes; one always fits."""

    def weigh(self, topic: Topic, runs: list[int]) -> int:
        """Return how many bytes live records take; guessed where they cannot be read."""

    def sizes(self, topic: Topic, lo: int, hi: int) -> Iterator[tuple[int, int]]:
        """Return (seq, bytes) of the live records with seqs in ``[lo, hi)``, ascending."""


def append_copies(
    state: State, topic_id: int, first_seq: int, records: list[Record], *, now_ms: int, moved_from: int = 0
) -> Appended:
    """Return the event that appends copies of records; ``moved_from`` is the topic that they leave."""
    packed = pack(records)
    tagged = any(record.tag is not None for record in records)
    extra = AppendExtra(tagged=tagged, moved_from=moved_from) if tagged or moved_from else None
    ts_ms = now_ms + state.wall_offset_ms
    return Appended(now_ms, topic_id, ts_ms, first_seq, packed.count, packed.ends, packed.blobs, packed.plain, extra)


def append_fitting(
    state: State,
    dest: Topic | None,
    config: TopicConfig,
    topic_id: int,
    first_seq: int,
    records: list[Record],
    *,
    now_ms: int,
    moved_from: int = 0,
) -> tuple[Appended | None, Overloaded | None]:
    """Return the event that appends copies of as many of the records as the destination has room for, None for none of
    them; and why the others do not fit.
    """
    event = append_copies(state, topic_id, first_seq, records, now_ms=now_ms, moved_from=moved_from)
    try:
        check_topic_room(dest, config, records=event.count, size=len(event.blobs))
    except Overloaded as error:
        room = room_for(dest, config, ends_of(event.ends, len(event.blobs)))
        if not room:
            return None, error
        fitting = append_copies(state, topic_id, first_seq, records[:room], now_ms=now_ms, moved_from=moved_from)
        return fitting, error
    return event, None
