"""Collect what the readable frames of a damaged log still prove, without assuming that none is missing.

The fold builds each event upon those before it; here every event stands for itself. What it says of a seq stays true
even if the events around it were lost: a record that was acked, deleted or moved is gone for good, because seqs and
topic ids are never used twice. So the order matters only for what can be replaced: configs, routers, what is parked.

In memory are the locations of records and the seqs that events name, never a payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyroaring import BitMap64

from tenure.contract.config import DEFAULTS, TopicConfig
from tenure.core.events import (
    Acked,
    Appended,
    BaseBegun,
    BasePart,
    Begun,
    Carried,
    Claimed,
    DeadLettered,
    Deleted,
    Event,
    Evicted,
    Extended,
    Lost,
    Redriven,
    Released,
    Returned,
    RouterMoved,
    RouterPut,
    TopicCarried,
    TopicDeleted,
    TopicPut,
)
from tenure.core.fold import fold
from tenure.core.fold.leases import copies_of
from tenure.core.fold.rewriting import rest_of
from tenure.core.state.frame_index import add_frame, replace_frames
from tenure.core.state.queue import Queue
from tenure.core.state.ranges import each
from tenure.core.state.snapshot import load_topic
from tenure.core.state.state import State
from tenure.core.state.topic import Topic

__all__ = ["GatheredLog", "GatheredTopic"]

_LEASE_EVENTS = (Claimed, Acked, Released, Extended, DeadLettered, Begun, Returned, Lost)


class GatheredTopic:
    """The facts about one topic. ``topic`` has its name, config, head and marks; its pieces point into the old log.
    ``declared`` says that name and config are its own.

    ``held`` are the seqs whose record lies in a whole frame, ``gone`` those known to be removed. ``based`` says that
    everything about it was met from its creation, or from a snapshot, on. ``parts`` are those met of a base, and
    ``later`` what may change since the moment that it shows; None where no base is expected.
    """

    __slots__ = ("based", "copies", "declared", "gone", "held", "later", "leased", "parked", "parts", "topic")

    def __init__(self, topic_id: int) -> None:
        self.topic = Topic(topic_id, "", DEFAULTS)
        self.held = BitMap64()
        self.gone = BitMap64()
        self.parked: dict[int, str] = {}
        self.copies: dict[int, int] = {}
        self.based = self.declared = self.leased = False
        self.parts = b""
        self.later: list[tuple[Event, int, bool]] | None = None

    @property
    def live(self) -> BitMap64:
        """Return the seqs whose records are to be kept."""
        return self.held - self.gone

    def see(self, seq: int) -> None:
        """Record that a seq was named, so it has been assigned."""
        self.topic.head_seq = max(self.topic.head_seq, seq)

    def bury(self, runs: list[int]) -> None:
        """Record that these seqs are gone for good."""
        for lo, n in zip(runs[::2], runs[1::2], strict=True):
            self.gone.add_range(lo, lo + n)

    def hold(self, event: Appended, location: int) -> None:
        """Record that a frame of records is whole."""
        entries, first = self.topic.frame_index, event.first_seq
        frame = (first, location, len(event.blobs), event.at_ms)
        if entries and entries[-1].firsts[-1] >= first:
            replace_frames(entries, first, first + event.count, frame)
        else:
            add_frame(entries, *frame)
        self.held.add_range(first, first + event.count)
        self.see(first + event.count - 1)
        self.topic.last_write_ms = event.ts_ms

    def hold_again(self, event: Carried, location: int) -> None:
        """Record a frame of rewritten records; the seqs that it leaves out of its range were dead by then.

        Those whose payload was lost are held no more than before: an older frame may still have it.
        """
        kept, covered = BitMap64(event.seqs), BitMap64()
        covered.add_range(event.lo, event.hi)
        if event.lost is None:
            frame = (event.lo, location, event.size_bytes, event.ats_ms[-1])
            replace_frames(self.topic.frame_index, event.lo, event.hi, frame, rest=rest_of(event))
            self.held |= kept
        self.gone |= covered - kept
        self.see(event.hi - 1)

    def recall(self, snapshot: Topic) -> None:
        """Take in a snapshot: all facts of its time, without payloads."""
        topic = self.topic
        for name in (
            "name",
            "config",
            "implicit",
            "created_ms",
            "last_write_ms",
            "trim_seq",
            "trim_missed",
            "recreated",
        ):
            setattr(topic, name, getattr(snapshot, name))
        topic.cap_floor = max(topic.cap_floor, snapshot.cap_floor)
        topic.ttl_floor = max(topic.ttl_floor, snapshot.ttl_floor)
        self.gone.add_range(1, snapshot.floor)
        if snapshot.dead:
            self.gone |= snapshot.dead
        self.see(snapshot.head_seq)
        self.parked = dict(snapshot.queue.parked) if snapshot.queue is not None else {}
        self.copies = dict(snapshot.queue.copies) if snapshot.queue is not None else {}
        self.based = True


class _Move(NamedTuple):
    """Jobs that left a topic for another by a broken batch: a fact only if they arrived there."""

    topic: int
    runs: list[int]
    dest: int
    dest_seq: int


class GatheredLog:
    """The facts left of a log. ``state`` has those about the whole broker: clock, ids, routers."""

    def __init__(self) -> None:
        self.state = State()
        self.topics: dict[int, GatheredTopic] = {}
        self._deleted: set[int] = set()
        self._names: dict[str, int] = {}
        self._moves: list[_Move] = []

    def take(self, event: Event, location: int, *, whole: bool, wounded: bool) -> None:
        """Take in one event; of a ``whole`` batch or not, after damage (``wounded``) or not."""
        state = self.state
        state.log_ms = max(state.log_ms, event.at_ms)
        topic_id = getattr(event, "topic", 0)
        state.next_topic_id = max(state.next_topic_id, topic_id + 1)
        if not topic_id:
            fold(state, event, location)
            self._see_router(event, wounded=wounded)
        elif isinstance(event, TopicDeleted):
            self._deleted.add(topic_id)
            self.topics.pop(topic_id, None)
            fold(state, event, location)
        elif topic_id not in self._deleted:
            self._about(self.topics.setdefault(topic_id, GatheredTopic(topic_id)), event, location, whole=whole)

    def _about(self, gathered: GatheredTopic, event: Event, location: int, *, whole: bool) -> None:
        topic = gathered.topic
        if isinstance(event, (*_LEASE_EVENTS, Deleted, Evicted, Redriven)):
            gathered.see(event.runs[-2] + event.runs[-1] - 1)
            gathered.leased |= isinstance(event, _LEASE_EVENTS)
        if gathered.later is not None and isinstance(event, (TopicPut, DeadLettered, Redriven)):
            gathered.later.append((event, location, whole))
        match event:
            case TopicPut():
                topic.name, topic.config, topic.implicit = event.name, event.config, event.implicit
                self._names[event.name] = topic.id
                self.state.retired.discard(event.name)
                if event.created:
                    topic.created_ms, gathered.based = event.at_ms, True
            case TopicCarried():
                gathered.recall(load_topic(event.snapshot))
                self._names[topic.name] = topic.id
            case BaseBegun():
                gathered.parts, gathered.later = b"", []
            case BasePart() if gathered.later is not None and event.offset == len(gathered.parts):
                gathered.parts += event.data
                if event.is_last:
                    self._recall_parts(gathered)
            case Appended():
                gathered.hold(event, location)
            case Carried():
                gathered.hold_again(event, location)
            case Acked() | Deleted():
                gathered.bury(event.runs)
            case Evicted():
                gathered.bury(event.runs)
                above = event.runs[-2] + event.runs[-1]
                topic.cap_floor = max(topic.cap_floor, above if event.reason == "cap" else 0)
                topic.ttl_floor = max(topic.ttl_floor, above if event.reason != "cap" else 0)
            case DeadLettered() if event.action in ("park", "copy"):
                gathered.parked.update(dict.fromkeys(each(event.runs), event.reason))
                gathered.copies.update(copies_of(event))
            case Redriven() if not event.dest:
                gathered.leased = True
                for seq in each(event.runs):
                    gathered.parked.pop(seq, None)
                    gathered.copies.pop(seq, None)
            case DeadLettered() | Redriven():
                if whole or not event.dest:
                    gathered.bury(event.runs)
                else:
                    self._moves.append(_Move(topic.id, event.runs, event.dest, event.dest_seq))

    def _recall_parts(self, gathered: GatheredTopic) -> None:
        """Take in a base that was logged in parts, then what has changed since the moment that it shows."""
        later, gathered.later = gathered.later or [], None
        gathered.recall(load_topic(gathered.parts))
        self._names[gathered.topic.name] = gathered.topic.id
        for event, location, whole in later:
            self._about(gathered, event, location, whole=whole)

    def _see_router(self, event: Event, *, wounded: bool) -> None:
        """Take in a router's place: it shows how far its source went, and each loss took a seq of its destination."""
        if not isinstance(event, (RouterPut, RouterMoved)):
            return
        router = self.state.routers.get(event.name)
        source = self.topics.get(self._names.get(router.source, 0)) if router is not None else None
        if source is not None:
            source.see(event.cursor)
        if isinstance(event, RouterMoved) and event.missed:
            dest = self.topics.get(event.dest)
            if dest is not None and dest.based and not wounded:
                dest.see(dest.topic.head_seq + 1)
                dest.gone.add(dest.topic.head_seq)
                dest.topic.trim_seq, dest.topic.trim_missed = dest.topic.head_seq, event.missed

    def settle(self) -> None:
        """Decide, after all events were taken in, what depends on all of them."""
        for move in self._moves:
            source, dest = self.topics.get(move.topic), self.topics.get(move.dest)
            if source is not None and (move.dest in self._deleted or (dest is not None and move.dest_seq in dest.held)):
                source.bury(move.runs)
        for topic_id, gathered in list(self.topics.items()):
            # A name is given again only once the topic that had it was deleted.
            if gathered.topic.name and self._names[gathered.topic.name] != topic_id:
                del self.topics[topic_id]
        for topic_id, gathered in sorted(self.topics.items()):
            gathered.declared = bool(gathered.topic.name)
            if not gathered.declared:
                gathered.topic.name = self._free_name(f"salvaged-{topic_id}")
                gathered.topic.config = TopicConfig(type="queue" if gathered.leased else "log")
            if gathered.topic.config.type == "queue":
                gathered.topic.queue = Queue()
            self.state.retired.discard(gathered.topic.name)

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}-{number}"
        self._names[name] = 0
        return name

    def __iter__(self) -> Iterator[GatheredTopic]:
        """Yield the topics that are left, by id."""
        return iter([gathered for _, gathered in sorted(self.topics.items())])
