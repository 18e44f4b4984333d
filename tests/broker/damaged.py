"""A log in which everything happens, what is true of it, and what must be left of it once frames are damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from tenure import Record
from tenure.broker.durability import trim
from tenure.broker.engine import Engine
from tenure.broker.frames import Frame
from tenure.broker.salvage.report import Rebuilt
from tenure.core.events import Appended, Carried, Event, TopicDeleted, decode
from tenure.core.fold import fold
from tenure.core.state.ranges import each
from tenure.core.state.state import State
from tenure.log import FileLog
from tenure.log.frame import HEADER_BYTES, KIND_FIRST, unpack_header
from tenure.log.segment import HEAD_BYTES, segment_name, segment_numbers
from tenure.settings import Settings
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.kit import run

SETTINGS = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=1024)
Key = tuple[int, int]
"""A record: topic id and seq."""


class Found(NamedTuple):
    """A frame of the undamaged log; ``event`` is None for the log's own."""

    file: str
    offset: int
    length: int
    batch: int
    location: int
    event: Event | None


class Truth(NamedTuple):
    """What the undamaged log says: its frames, every record in them, and which of those are alive."""

    disk: SimDisk
    clock: ManualClock
    state: State
    frames: list[Found]
    blobs: dict[Key, bytes]
    live: set[Key]


def rich_log(seed: int = 1) -> tuple[SimDisk, ManualClock]:
    """Several topics, produces of every kind, claims, acks, nacks, dead letters, redrives, deletes, routers, trims."""
    disk, clock, random = SimDisk(seed), ManualClock(), Random(seed)
    log = FileLog.open(disk, segment_bytes=SETTINGS.segment_bytes)
    engine = Engine(log, clock=clock, settings=SETTINGS)
    engine.recover()
    _old_times(engine, random)
    _declare(engine)
    for turn in range(3):
        _work(engine, clock, turn)
        engine.sync()
    assert log.segments()[0].number > 1, "something was trimmed"
    engine.sync()
    log.close()
    return disk, clock


def _old_times(engine: Engine, random: Random) -> None:
    """Fill and empty a queue until its first segments are dropped; some records stay and are carried along."""
    run.put_topic(engine, "old", {"type": "queue", "durability": "fsync"})
    run.put_topic(engine, "kept", {"cap_records": 50})
    for number in range(60):
        run.produce(engine, "old", [b'"old-%d-%d-%s"' % (number, i, b"." * 60) for i in range(3)])
        if number % 5 == 0:
            tag = f"keep.{number}"
            run.produce(engine, "kept", [Record(data=b'"kept-%d"' % number, tag=tag), Record(data=b"0")])
        engine.sync()
        claim = run.claim(engine, "old", node="w", max_count=3).reply
        done = 3 if number < 10 else random.choice((2, 3, 3))
        run.ack(engine, "old", node="w", seqs=claim.seqs[:done])
        engine.sync()
    while trim.trim_due(engine):
        trim.trim_step(engine)


def _declare(engine: Engine) -> None:
    run.put_topic(engine, "jobs", {"type": "queue", "max_deliveries": 2, "dead_letter": "letters"})
    run.put_topic(engine, "parking", {"type": "queue", "dlq_strategy": "block"})
    run.put_topic(engine, "both", {"type": "queue", "dlq_strategy": "block_and_dlq", "dead_letter": "copies"})
    run.put_topic(engine, "capped", {"cap_records": 4})
    run.put_topic(engine, "passing", {})
    run.put_topic(engine, "fast", {"cap_records": 2})
    run.put_topic(engine, "empty", {})
    run.put_router(engine, "r3", source="fast", dest="slow")
    run.put_router(engine, "r1", source="jobs", dest="audit")
    run.put_router(engine, "r2", source="capped", dest="trail", filter=["tag", "Glob", "a.*"])
    engine.write()


def _work(engine: Engine, clock: ManualClock, turn: int) -> None:
    records = [Record(data=b'"%d-%d"' % (turn, i), tag=f"a.{i}", node="p", meta=b'{"k":1}') for i in range(4)]
    run.produce(engine, "jobs", records, idempotency_key=f"key-{turn}")
    run.produce(engine, "capped", records)
    engine.write()
    run.produce(engine, "jobs", [b'"plain-%d"' % turn, Record(data=b'"late"', delay_ms=5000)])
    for name in ("parking", "both", "passing"):
        run.produce(engine, name, [b'"%s-%d-%d"' % (name.encode(), turn, i) for i in range(3)])
        engine.write()
    for number in range(4):  # more than is kept until the router comes: it burns a seq to say so
        run.produce(engine, "fast", [b'"fast-%d-%d"' % (turn, number)])
        engine.write()
    for source in ("jobs", "capped", "fast"):
        while run.forward(engine, engine.state.topics[source]):
            pass
    _settle(engine, clock, turn)
    run.delete_records(engine, "capped", match=["tag", "Eq", "a.2"])
    run.delete_topic(engine, "passing")
    run.produce(engine, "passing", [b'"again-%d"' % turn])
    engine.write()


def _settle(engine: Engine, clock: ManualClock, turn: int) -> None:
    claim = run.claim(engine, "jobs", node="w", max_count=4, lease_ms=1000).reply
    engine.write()
    run.ack(engine, "jobs", node="w", seqs=claim.seqs[:1])
    run.nack(engine, "jobs", node="w", seqs=claim.seqs[1:2], dead=True, reason="poison")
    run.nack(engine, "jobs", node="w", seqs=claim.seqs[2:3], delay_ms=200, reason="later")
    run.extend(engine, "jobs", node="w", seqs=claim.seqs[3:], lease_ms=3000)
    engine.write()
    for name in ("parking", "both"):
        claim = run.claim(engine, name, node="w", max_count=3).reply
        run.nack(engine, name, node="w", seqs=claim.seqs[:2], dead=True, reason="stop")
        run.ack(engine, name, node="w", seqs=claim.seqs[2:])
        engine.write()
    if turn == 1:
        run.redrive(engine, "letters", limit=1)
        run.redrive(engine, "parking", limit=1)
        engine.write()
    clock.advance(4000)


# What is true of it


def truth_of(disk: SimDisk, clock: ManualClock) -> Truth:
    """Read a sound log, with no code of the salvage."""
    frames = [found for number in segment_numbers(disk) for found in _frames(disk, number)]
    state, blobs, live = State(), dict[Key, bytes](), set[Key]()
    for found in frames:
        if found.event is not None:
            fold(state, found.event, found.location)
            blobs.update(records_in(found.event))
    for topic in state.by_id.values():
        live.update((topic.id, seq) for seq in each(topic.live_runs(topic.floor, topic.head_seq + 1)))
    assert live <= blobs.keys()
    return Truth(disk, clock, state, frames, blobs, live)


def _frames(disk: SimDisk, number: int) -> Iterator[Found]:
    name, offset = segment_name(number), HEAD_BYTES
    data = disk.content(name)
    while len(data) - offset >= HEADER_BYTES and (header := unpack_header(data, offset))[0]:
        length, kind = header[0], header[5]
        body = data[offset + HEADER_BYTES : offset + length]
        event = decode(kind, body) if kind >= KIND_FIRST else None
        yield Found(name, offset, length, header[3], number << 32 | offset, event)
        offset += length


def records_in(event: Event | None) -> dict[Key, bytes]:
    """The records that a frame holds, each with all its bytes."""
    if not isinstance(event, (Appended, Carried)):
        return {}
    frame = Frame(event)
    return {(event.topic, frame.table.seq(i)): frame.payload(range(i, i + 1)) for i in range(len(frame.table.ends))}


def whole(truth: Truth, damaged: Iterable[Found]) -> set[Key]:
    """The live records of which a copy lies in a frame that is not damaged."""
    bad = set(map(id, damaged))
    return {key for found in truth.frames if id(found) not in bad for key in records_in(found.event)} & truth.live


def settled_by(truth: Truth, damaged: Iterable[Found]) -> tuple[set[Key], set[int]]:
    """What may come back because the word that it is gone was damaged: records, and whole topics."""
    batches = {found.batch for found in damaged}
    keys, ids = set[Key](), set[int]()
    for found in truth.frames:
        if found.batch in batches and found.event is not None:
            keys |= {(getattr(found.event, "topic", 0), seq) for seq in each(getattr(found.event, "runs", []))}
            if isinstance(found.event, TopicDeleted):
                ids.add(found.event.topic)
    return keys, ids


def named_lost(report: Rebuilt) -> set[Key]:
    """The records that a report says are lost."""
    return {(topic.id, seq) for topic in report.topics for lo, hi in topic.lost for seq in range(lo, hi + 1)}
