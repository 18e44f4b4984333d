"""Salvage: a new directory with everything readable of a damaged one, and the exact list of what is not in it.

The rest of the old log is read twice: once to collect its facts (`tenure.broker.salvage.gather`), once to copy the
records that are to be kept, under the seqs they always had. The old directory is never written to.

The new log is written in the form that trimming leaves behind: records first (`Carried`), then the topics they belong
to (`TopicCarried`). A broker refuses a log with records of an undeclared topic, so a salvage that was cut short is not
taken for a small but sound directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from pyroaring import BitMap64

from tenure.broker.durability.trim import Taken, carried, fits
from tenure.broker.engine import Engine
from tenure.broker.frames import Frame
from tenure.broker.salvage.gather import GatheredLog, GatheredTopic
from tenure.broker.salvage.report import KeptRouter, KeptTopic, Rebuilt
from tenure.clock import Clock, SystemClock
from tenure.core.events import Appended, Carried, StateCarried, TopicCarried, decode
from tenure.core.records import unpack
from tenure.core.state.frame_index import FramePlace, places
from tenure.core.state.ranges import gaps_of, runs_of
from tenure.core.state.snapshot import dump_state, dump_topic
from tenure.core.state.tags import TagIndex
from tenure.core.state.topic import Topic
from tenure.errors import Conflict, Corrupt
from tenure.log import checkpoint
from tenure.log.damage.defects import Problem
from tenure.log.damage.revisit import Revisit
from tenure.log.damage.survey import Survey
from tenure.log.disk import Disk, PosixDisk
from tenure.log.log import FileLog
from tenure.log.segment import segment_name, segment_numbers
from tenure.settings import Settings

__all__ = ["rebuild"]

_BATCH_BYTES = 1 << 20


def rebuild(
    directory: Disk | str | Path,
    into: Disk | str | Path,
    *,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> Rebuilt:
    """Write every record that is whole and not known to be gone into a new directory; report what is missing there.

    The old directory is not changed; no broker may have it open. Raises Conflict where the new one already holds a
    log, Corrupt for a newer format, Overloaded on a full disk.
    """
    source = PosixDisk(directory, create=False) if isinstance(directory, (str, Path)) else directory
    target = PosixDisk(into) if isinstance(into, (str, Path)) else into
    if segment_numbers(target) or checkpoint.exists(target):
        raise Conflict("the directory to salvage into already holds a log: choose an empty one", code="not_empty")
    settings = settings or Settings()
    survey, gathered_log, problems = Survey(source), GatheredLog(), list[Problem]()
    _gather(survey, gathered_log, problems)
    report = survey.report()
    log = FileLog.open(target, segment_bytes=settings.segment_bytes, epoch=report.epoch)
    engine = Engine(log, clock=clock or SystemClock(), settings=settings)
    engine.state = gathered_log.state  # log time, epochs, topic ids and routers go on where the old log ended
    revisit = Revisit(survey)
    try:
        routers = _place_routers(engine, gathered_log)
        engine.recover()
        topics = _write(engine, gathered_log, revisit, problems)
    finally:
        revisit.close()
        log.close()
    found = report._replace(problems=report.problems + problems)
    return Rebuilt(found=found, topics=topics, routers=routers)


def _gather(survey: Survey, gathered_log: GatheredLog, problems: list[Problem]) -> None:
    """Collect the facts of every readable frame."""
    for frames, whole in survey.batches():
        for kind, topic, location, body in frames:
            try:
                gathered_log.take(decode(kind, body), location, whole=whole, wounded=survey.wounded)
            except (Corrupt, KeyError, msgspec.MsgspecError) as error:
                why = f"a whole frame of kind {kind} that cannot be understood: {error}"
                problems.append(_problem(location, why, topic=topic, size=len(body)))
    gathered_log.settle()


def _problem(location: int, why: str, *, topic: int, size: int = 0) -> Problem:
    offset = location & 0xFFFFFFFF
    return Problem(segment_name(location >> 32), offset, offset + size, why, topics=(topic,))


def _place_routers(engine: Engine, gathered_log: GatheredLog) -> list[KeptRouter]:
    """Set each router after its source's newest record, so that it copies nothing twice."""
    sources = {gathered.topic.name: gathered for gathered in gathered_log}
    kept = []
    for name, router in sorted(engine.state.routers.items()):
        source, passed_over = sources.get(router.source), list[int]()
        if source is not None:
            passed_over = runs_of(source.live, router.cursor + 1, source.topic.head_seq + 1)
        router.cursor = source.topic.head_seq if source is not None else 0
        kept.append(KeptRouter(router=name, source=router.source, dest=router.dest, passed_over=_ends(passed_over)))
    engine.state.index_routers()
    return kept


def _write(engine: Engine, gathered_log: GatheredLog, revisit: Revisit, problems: list[Problem]) -> list[KeptTopic]:
    """Write the broker-wide facts, all records, and at last the topics, those with records after the others."""
    engine.commit(StateCarried(engine.now(), msgspec.Raw(dump_state(engine.state))))
    kept = []
    for gathered in gathered_log:
        lost = _write_records(engine, gathered, revisit, problems)
        kept.append(_report_topic(gathered, lost))
    for gathered in sorted(gathered_log, key=lambda each: each.topic.count > 0):
        now, topic = engine.now(), gathered.topic
        engine.commit(TopicCarried(now, topic.id, msgspec.Raw(dump_topic(topic, now_ms=now))))
        engine.write()
    engine.sync()
    return kept


def _write_records(engine: Engine, gathered: GatheredTopic, revisit: Revisit, problems: list[Problem]) -> list[int]:
    """Copy the records of one topic, a bounded number of bytes at a time; return the runs of seqs that are lost."""
    topic, written = gathered.topic, BitMap64()
    taken: list[Taken] = []
    size = 0
    for place, runs in _wanted(gathered):
        try:
            frame = _frame(revisit, place)
        except (Corrupt, OSError) as error:
            problems.append(_problem(place[1], str(error), topic=topic.id))
            continue
        if taken and (size >= _BATCH_BYTES or not fits(topic, taken[0], place, frame, now_ms=engine.now())):
            written.update(_carry(engine, topic, taken))
            taken, size = [], 0
        taken.append((place, frame, runs))
        size += place[2]
    if taken:
        written.update(_carry(engine, topic, taken))
    _settle(gathered, written)
    return gaps_of(written | gathered.gone, 1, topic.head_seq + 1)


def _wanted(gathered: GatheredTopic) -> Iterator[tuple[FramePlace, list[int]]]:
    """Yield the frames that hold records to be kept, ascending, with the runs of these."""
    live, end = gathered.live, gathered.topic.head_seq + 1
    before: FramePlace | None = None
    for place in places(gathered.topic.frame_index, 1, end):
        if before is not None and (runs := runs_of(live, before[0], place[0])):
            yield before, runs
        before = place
    if before is not None and (runs := runs_of(live, before[0], end)):
        yield before, runs


def _frame(revisit: Revisit, place: FramePlace) -> Frame:
    kind, _, body = revisit.read(place[1])
    event = decode(kind, body)
    assert isinstance(event, (Appended, Carried))
    return Frame(event)


def _carry(engine: Engine, topic: Topic, taken: list[Taken]) -> list[int]:
    """Write the wanted records of a few frames as one; return their seqs."""
    last = taken[-1][2]
    event = carried(engine.now(), topic, taken, lo=taken[0][2][0], hi=last[-2] + last[-1])
    engine.commit(event)
    engine.write()
    topic.bytes += len(event.blobs)
    if not event.plain:
        _index_tags(topic, Frame(event))
    return event.seqs


def _index_tags(topic: Topic, frame: Frame) -> None:
    for index in range(len(frame.table.ends)):
        _, extras = unpack(frame.payload(range(index, index + 1)), frame.plain)
        if extras.tag is not None:
            if topic.tags is None:
                topic.tags = TagIndex(topic.is_dead)
            topic.tags.add(extras.tag, frame.table.seq(index))


def _settle(gathered: GatheredTopic, written: BitMap64) -> None:
    """Set what follows from the records that were written: everything else is dead in the new directory."""
    topic = gathered.topic
    seq_after = topic.head_seq + 1
    topic.count, topic.floor = len(written), written.min() if written else seq_after
    dead = BitMap64()
    dead.add_range(topic.floor, seq_after)
    topic.dead = (dead - written) or None
    if topic.queue is not None:
        topic.queue.parked = {seq: reason for seq, reason in gathered.parked.items() if seq in written}
        topic.queue.copies = {seq: copy for seq, copy in gathered.copies.items() if seq in topic.queue.parked}


def _report_topic(gathered: GatheredTopic, lost: list[int]) -> KeptTopic:
    topic = gathered.topic
    return KeptTopic(
        id=topic.id,
        topic=topic.name,
        type=topic.config.type,
        declared=gathered.declared,
        records=topic.count,
        bytes=topic.bytes,
        head_seq=topic.head_seq,
        lost=_ends(lost),
    )


def _ends(runs: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last seq of each run."""
    return [(lo, lo + n - 1) for lo, n in zip(runs[::2], runs[1::2], strict=True)]
