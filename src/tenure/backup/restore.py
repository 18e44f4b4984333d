"""Restore a backup as a new log: the same jobs, under their seqs, in a log with an identity of its own.

The log of the backup is folded up to its end, and what it folds to is written into a new log in the form that trimming
and salvage leave behind: records first (`Carried`), then the topics they belong to (`TopicCarried`). So only what is
alive is written, and a log that was cut short in the middle is refused by a broker, as it has records of a topic that
was never declared. See :mod:`~tenure.backup.incarnation` for what is changed on the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import chain, pairwise

import msgspec

from tenure.backup.incarnation import choose_epoch, leave_out_seqs, release_leases
from tenure.broker.durability.trim import Taken, carried, fits
from tenure.broker.engine import Engine
from tenure.broker.frames import Frame
from tenure.broker.newest_checkpoint import newest_state
from tenure.clock import Clock
from tenure.core.events import Appended, Carried, StateCarried, TopicCarried, decode
from tenure.core.fold import fold
from tenure.core.state.frame_index import FramePlace, places
from tenure.core.state.snapshot import dump_state, dump_topic, load_state
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, Corrupt
from tenure.log import checkpoint
from tenure.log.disk import Disk
from tenure.log.held_segments import HeldSegments
from tenure.log.interface import Position
from tenure.log.log import FileLog
from tenure.log.reader import FrameReader, SegmentFiles
from tenure.log.segment import list_heads, segment_numbers
from tenure.settings import Settings

__all__ = ["RestoredLog", "restore_log"]

_BATCH_BYTES = 1 << 20
_SYNC_BYTES = 16 << 20
_HANDLES_MAX = 64


class RestoredLog(msgspec.Struct, frozen=True):
    """What a restore wrote: the identity of the new log, what is in it, and how many jobs were released."""

    log_id: str
    epoch: int
    topics: int
    records: int
    jobs: int
    released: int


def restore_log(
    fetched: Disk,
    target: Disk,
    *,
    end: Position,
    epoch: int,
    clock: Clock,
    settings: Settings | None = None,
    keep_leases: bool = False,
) -> RestoredLog:
    """Write a log that was fetched, up to its end, into an empty disk as a new one; return once it is durable.

    Raises Conflict where the disk holds a log or the leases cannot be kept, Corrupt where the backup is damaged,
    Overloaded on a full disk, OSError.
    """
    if segment_numbers(target) or checkpoint.exists(target):
        raise Conflict("the directory to restore into already holds a log: choose an empty one", code="not_empty")
    settings = settings or Settings()
    state = _fold_to(fetched, end)
    epoch = choose_epoch(epoch, keep_leases=keep_leases, random_below=secrets.randbelow)
    released = 0 if keep_leases else release_leases(state)
    leave_out_seqs(state, random_below=secrets.randbelow)
    log_id = secrets.token_bytes(16)
    log = FileLog.open(target, segment_bytes=settings.segment_bytes, log_id=log_id, epoch=epoch)
    records = _Records(fetched)
    try:
        engine = Engine(log, clock=clock, settings=settings)
        engine.state = _facts_of(state)
        engine.recover()
        _write(engine, state, records)
        checkpoint.save(target, log.position(), engine.checkpoint())
    finally:
        records.close()
        log.close()
    counts = (len(state.by_id), sum(topic.count for topic in state.by_id.values()), state.jobs)
    return RestoredLog(log_id.hex(), log.epoch, *counts, released)


def _fold_to(disk: Disk, end: Position) -> State:
    """Return the state of a log at its end, from its checkpoint and what follows. Raises Corrupt."""
    segments = HeldSegments(disk)
    try:
        newest = newest_state(checkpoint.load(disk), segments.goes_through)
        state, after = newest or (State(), None)
        segments.hold(after)
        scan = segments.scan(after, end)
        for kind, _, location, body in scan.frames():
            fold(state, decode(kind, body), location)
    finally:
        segments.close()
    if state.orphans or scan.end[:5] != end[:5]:
        raise Corrupt(f"the log of the backup does not lead to batch {end.batch}. Use another backup.")
    return state


def _facts_of(state: State) -> State:
    """Return a state with the facts about the broker as a whole: clock, ids, routers."""
    facts = State()
    load_state(facts, dump_state(state))
    return facts


def _write(engine: Engine, state: State, records: _Records) -> None:
    """Write the broker-wide facts, all records, and at last the topics, those with records after the others."""
    engine.commit(StateCarried(engine.now(), msgspec.Raw(dump_state(engine.state))))
    unsynced = 0
    for topic in state.by_id.values():
        for event in _carried(engine, topic, records):
            engine.commit(event)
            engine.write()
            unsynced += len(event.blobs)
            if unsynced >= _SYNC_BYTES:  # in parts, because a sync of another log waits for all that the disk has
                engine.sync()
                unsynced = 0
    for topic in sorted(state.by_id.values(), key=lambda topic: topic.count > 0):
        engine.commit(TopicCarried(engine.now(), topic.id, msgspec.Raw(dump_topic(topic, now_ms=state.log_ms))))
        engine.write()
    engine.sync()


def _carried(engine: Engine, topic: Topic, records: _Records) -> Iterator[Carried]:
    """Yield the live records of a topic, about as many bytes at a time as fit a batch."""
    taken: list[Taken] = []
    size = 0
    for place, runs in _wanted(topic):
        frame = records.frame(place)
        if taken and (size >= _BATCH_BYTES or not fits(topic, taken[0], place, frame, now_ms=engine.now())):
            yield _joined(engine, topic, taken)
            taken, size = [], 0
        taken.append((place, frame, runs))
        size += place[2]
    if taken:
        yield _joined(engine, topic, taken)


def _joined(engine: Engine, topic: Topic, taken: list[Taken]) -> Carried:
    last = taken[-1][2]
    return carried(engine.now(), topic, taken, lo=taken[0][2][0], hi=last[-2] + last[-1])


def _wanted(topic: Topic) -> Iterator[tuple[FramePlace, list[int]]]:
    """Yield the frames that hold live records, ascending, with the runs of these."""
    end = topic.head_seq + 1
    found: Iterator[FramePlace | None] = chain(places(topic.frame_index, topic.floor, end), (None,))
    for place, after in pairwise(found):
        assert place is not None
        if runs := topic.live_runs(place[0], end if after is None else after[0]):
            yield place, runs


class _Records:
    """Reads the frames of the log that is restored."""

    def __init__(self, disk: Disk) -> None:
        self._files = SegmentFiles(disk, handles_max=_HANDLES_MAX)
        self._reader = FrameReader(disk, self._files)
        self._salts = {head.number: head.salt for head in list_heads(disk)}

    def frame(self, place: FramePlace) -> Frame:
        """Return the frame at a place, verified. Raises Corrupt."""
        kind, _, body = self._reader.read(place[1], self._salts.get(place[1] >> 32))
        event = decode(kind, body)
        assert isinstance(event, (Appended, Carried))
        return Frame(event)

    def close(self) -> None:
        """Close the files."""
        self._files.close()
