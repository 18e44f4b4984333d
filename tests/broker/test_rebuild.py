"""Salvage (fault 7): whatever is damaged, the new directory opens, holds all that is whole, and the report names the
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import msgspec
import pytest

from tenure import Broker
from tenure.broker.engine import Engine
from tenure.broker.salvage.rebuild import rebuild
from tenure.broker.salvage.report import Rebuilt
from tenure.core.events import Appended, Carried, DeadLettered, Event, Redriven, TopicCarried, TopicPut
from tenure.core.state.frame_index import places
from tenure.core.state.invariants import invariants
from tenure.core.state.ranges import each as each_seq
from tenure.errors import Conflict, Corrupt
from tenure.log import FileLog, checkpoint
from tenure.log.damage.defects import Problem
from tenure.log.damage.verify import verify
from tenure.log.frame import HEADER_BYTES
from tenure.log.segment import HEAD_BYTES, segment_name, segment_numbers
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import PowerLoss, SimDisk
from tests.broker.damaged import (
    SETTINGS,
    Found,
    Key,
    Truth,
    named_lost,
    rich_log,
    settled_by,
    truth_of,
    whole,
)
from tests.kit import run

SEEDS = (1, 2)


@cache
def truth(seed: int = 1) -> Truth:
    return truth_of(*rich_log(seed))


def flip(disk: SimDisk, found: Found, at: int) -> None:
    disk.flip_bit(found.file, (found.offset + at) * 8 + at % 8)


def salvage(known: Truth, disk: SimDisk) -> tuple[SimDisk, Rebuilt]:
    before = {name: disk.content(name) for name in disk.names()}
    target = SimDisk(9)
    report = rebuild(disk, target, clock=known.clock, settings=SETTINGS)
    assert {name: disk.content(name) for name in disk.names()} == before, "the old directory is not changed"
    assert report.found.problems[: len(verify(disk).problems)] == verify(disk).problems
    return target, report


def engine_on(disk: SimDisk, clock: ManualClock) -> Engine:
    engine = Engine(FileLog.open(disk, segment_bytes=SETTINGS.segment_bytes), clock=clock, settings=SETTINGS)
    engine.recover()
    return engine


def records_of(engine: Engine) -> dict[Key, bytes]:
    """Every live record, with all its bytes, read as a reader would."""
    found: dict[Key, bytes] = {}
    for topic in engine.state.by_id.values():
        for seq in each_seq(topic.live_runs(topic.floor, topic.head_seq + 1)):
            _, location, size, _ = next(places(topic.frame_index, seq, seq + 1))
            frame = engine.reader.frame(location, size)
            found[topic.id, seq] = frame.payload(frame.table.between(seq, seq + 1))
    return found


def check(known: Truth, damaged: list[Found], disk: SimDisk, *, blind: bool = False) -> Rebuilt:
    """Salvage and judge. ``blind`` allows that the topic of a damaged frame is not known."""
    target, report = salvage(known, disk)
    engine = engine_on(target, known.clock)
    invariants(engine.state)
    kept, names = records_of(engine), {topic.id: topic.name for topic in engine.state.by_id.values()}
    assert names == {topic.id: topic.topic for topic in report.topics}
    assert {topic.id: topic.records for topic in report.topics} == {
        topic.id: topic.count for topic in engine.state.by_id.values()
    }
    for key, blob in kept.items():
        assert known.blobs.get(key) == blob, "something appeared that nobody sent"
    torn = [found for found in known.frames if report.found.torn and lies_in(found, report.found.torn)]
    assert whole(known, [*damaged, *torn]) <= kept.keys(), "a record that is whole is not there"
    back, revived = settled_by(known, [*damaged, *torn])
    again = {key for key in kept.keys() - known.live if key not in back and key[0] not in revived}
    assert not again, f"{again} are gone, and nothing that says so was damaged"
    missing = known.live - kept.keys() - named_lost(report)
    heads = {topic.id: topic.head_seq for topic in report.topics}
    problems = [*report.found.problems, *([report.found.torn] if report.found.torn else [])]
    touched = {topic for problem in problems for topic in problem.topics}
    silent = {key for key in missing if key[1] <= heads.get(key[0], 0) or not (blind or key[0] in touched)}
    assert not silent, f"{silent} are missing, and nobody says so"
    engine.log.close()
    return report


def lies_in(found: Found, problem: Problem) -> bool:
    return found.file == problem.file and problem.offset <= found.offset < problem.end


# Nothing is damaged


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_log_keeps_every_record_config_tag_and_parked_job(seed: int) -> None:
    known = truth(seed)
    report = check(known, [], known.disk.kill())
    assert report.complete
    assert all(topic.declared for topic in report.topics)
    target, _ = salvage(known, known.disk.kill())
    engine = engine_on(target, known.clock)
    for topic_id, old in known.state.by_id.items():
        new = engine.state.by_id[topic_id]
        same = ("name", "config", "created_ms", "head_seq", "floor", "count", "bytes", "cap_floor", "ttl_floor")
        assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
        assert (new.tags.dump() if new.tags else None) == (old.tags.dump() if old.tags and old.count else None)
        assert (new.queue is None) == (old.queue is None)
        if new.queue is not None and old.queue is not None:
            assert new.queue.parked == old.queue.parked
            assert (len(new.queue.in_flight), len(new.queue.deliveries), len(new.queue.delayed)) == (0, 0, 0)
    assert engine.state.next_topic_id == known.state.next_topic_id
    assert engine.state.epoch > known.state.epoch, "no lease id is given twice"
    assert sorted(engine.state.routers) == ["r1", "r2", "r3"]


def test_an_empty_directory_becomes_an_empty_log() -> None:
    target = SimDisk(2)
    report = rebuild(SimDisk(1), target, clock=ManualClock(), settings=SETTINGS)
    assert report.complete
    assert report.topics == []
    assert engine_on(target, ManualClock()).state.topics == {}


def test_it_never_writes_into_a_directory_that_holds_something() -> None:
    known, full = truth(), SimDisk(3)
    engine_on(full, ManualClock()).log.close()
    only_checkpoints = SimDisk(4)
    checkpoint.save(only_checkpoints, engine_on(SimDisk(5), ManualClock()).log.position(), b"state")
    for target in (full, only_checkpoints):
        with pytest.raises(Conflict):
            rebuild(known.disk.kill(), target, clock=known.clock, settings=SETTINGS)


# Frames are damaged


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_every_frame_damaged_in_turn(seed: int) -> None:
    """A byte of the body, or of the topic where there is none: the report may not even lose sight of the topic."""
    known = truth(seed)
    for number, found in enumerate(known.frames):
        disk = known.disk.kill()
        flip(disk, found, min(found.length - 1, HEADER_BYTES + number % 40))
        check(known, [found], disk)


def test_every_frame_damaged_in_its_header() -> None:
    """Length, checksum, epoch, batch, witness, kind, flags: then not even the topic is known for certain."""
    known = truth()
    for number, found in enumerate(known.frames):
        disk = known.disk.kill()
        flip(disk, found, number % HEADER_BYTES)
        check(known, [found], disk, blind=True)


@pytest.mark.parametrize("seed", range(40))
def test_several_frames_damaged_at_once(seed: int) -> None:
    known, random = truth(1 + seed % 2), Random(seed)
    damaged = random.sample(known.frames, random.choice((2, 3, 8, 30)))
    disk = known.disk.kill()
    for found in damaged:
        flip(disk, found, random.randrange(8, found.length))
    check(known, damaged, disk, blind=True)


def test_most_of_a_log_damaged_still_gives_the_rest() -> None:
    known, random = truth(), Random(3)
    kept = random.sample(known.frames, 12)
    disk, ids = known.disk.kill(), set(map(id, kept))
    damaged = [found for found in known.frames if id(found) not in ids]
    for found in damaged:
        flip(disk, found, random.randrange(8, found.length))
    check(known, damaged, disk, blind=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_segment_missing_in_turn(seed: int) -> None:
    """Fault 10."""
    known = truth(seed)
    for number in segment_numbers(known.disk):
        disk = known.disk.kill()
        disk.remove(segment_name(number))
        report = check(known, [each for each in known.frames if each.file == segment_name(number)], disk, blind=True)
        assert report.found.problems or number in (segment_numbers(known.disk)[0], segment_numbers(known.disk)[-1])


def test_damaged_heads_cost_nothing() -> None:
    known = truth()
    numbers = segment_numbers(known.disk)
    for wounds in (*([number] for number in numbers), numbers):
        disk = known.disk.kill()
        for number in wounds:
            disk.flip_bit(segment_name(number), 25 * 8)
        report = check(known, [], disk)
        assert {problem.file for problem in report.found.problems} >= {segment_name(number) for number in wounds}
        assert not named_lost(report)


def test_a_segment_cut_short_keeps_what_lies_before() -> None:
    known = truth()
    number = segment_numbers(known.disk)[1]
    content = known.disk.content(segment_name(number))
    for size in range(HEAD_BYTES, len(content), 191):
        disk = known.disk.kill()
        disk.put(segment_name(number), content[:size])
        gone = [each for each in known.frames if each.file == segment_name(number) and each.offset + each.length > size]
        check(known, gone, disk, blind=True)


# What is made of it


def damaged_where(known: Truth, wanted: Callable[[Event], bool], *, all_of_them: bool = False) -> SimDisk:
    """The log with the first frame, or all frames, of that kind damaged."""
    disk = known.disk.kill()
    frames = [found for found in known.frames if found.event is not None and wanted(found.event)]
    for found in frames if all_of_them else frames[:1]:
        flip(disk, found, HEADER_BYTES)
    return disk


async def test_the_new_directory_works() -> None:
    """Every kind of event damaged in turn: produce, claim and ack all there is, close, open again."""
    known = truth()
    for kind in sorted({type(found.event) for found in known.frames if found.event is not None}, key=str):
        disk = damaged_where(known, lambda event, kind=kind: type(event) is kind)  # type: ignore[misc]
        target, report = salvage(known, disk)
        async with await Broker.open(target, clock=known.clock, settings=SETTINGS) as broker:
            for topic in report.topics:
                before = broker.topic(topic.topic).head_seq
                assert (await broker.produce(topic.topic, [b'"new"'])).first_seq == before + 1
            for topic in report.topics:
                if topic.type == "queue":
                    await work_off(broker, topic.topic)
                else:
                    assert (await broker.diff(topic.topic)).records
        async with await Broker.open(target, clock=known.clock, settings=SETTINGS) as broker:
            for topic in report.topics:
                assert topic.type == "log" or not broker.topic(topic.topic).count


async def work_off(broker: Broker, name: str) -> None:
    queue = broker.topic(name).queue
    assert queue is not None
    if queue.parked:
        await broker.redrive(name)
    while (claim := await broker.claim(name, node="w", max_count=7)).seqs:
        assert not (await broker.ack(name, node="w", seqs=claim.seqs)).skipped
    assert not broker.topic(name).count


def test_topics_whose_declaration_is_lost_get_a_name_and_a_type() -> None:
    known = truth()
    disk = damaged_where(known, lambda event: isinstance(event, (TopicPut, TopicCarried)), all_of_them=True)
    target, report = salvage(known, disk)
    types = {topic.id: topic.type for topic in report.topics}
    assert not any(topic.declared for topic in report.topics)
    assert [topic.topic for topic in report.topics] == [f"salvaged-{topic.id}" for topic in report.topics]
    for topic_id, old in known.state.by_id.items():
        if old.head_seq and old.name != "old":  # of that one no lease event is left in the log
            assert types[topic_id] == old.config.type
    assert engine_on(target, known.clock).state.routers["r1"].cursor == 0, "its source has no name any more"


def test_a_dead_letter_whose_arrival_is_damaged_stays_where_it_was() -> None:
    """Fault 39: in one place or in both, never in neither. What left is in the same batch, and that frame is whole."""
    known, tried = truth(), 0
    ids = {topic.name: topic.id for topic in known.state.by_id.values()}
    for found in known.frames:
        event = found.event
        if isinstance(event, (DeadLettered, Redriven)) and event.dest and getattr(event, "action", "move") == "move":
            arrival = next(
                each
                for each in known.frames
                if isinstance(each.event, Appended) and (each.event.topic, each.batch) == (event.dest, found.batch)
            )
            disk = known.disk.kill()
            flip(disk, arrival, HEADER_BYTES + 5)
            target, report = salvage(known, disk)
            assert {(event.topic, seq) for seq in each_seq(event.runs)} <= records_of(
                engine_on(target, known.clock)
            ).keys()
            assert (event.dest, event.dest_seq) in named_lost(report) or event.dest == ids["letters"]
            tried += 1
    assert tried == 4


def test_a_seq_that_only_a_lease_speaks_of_is_known_and_lost() -> None:
    """Else it would be given to another record, and the holder of the lease would not notice."""
    disk, clock = SimDisk(1), ManualClock()
    engine = engine_on(disk, clock)
    run.put_topic(engine, "q", {"type": "queue"})
    run.produce(engine, "q", [b"1"])
    engine.write()
    run.produce(engine, "q", [b"2", b"3"])
    engine.write()
    run.claim(engine, "q", node="w", max_count=3)
    engine.log.close()
    known = truth_of(disk.kill(), clock)
    flip(disk, [found for found in known.frames if isinstance(found.event, Appended)][1], HEADER_BYTES + 3)
    target = SimDisk(2)
    [kept] = rebuild(disk, target, clock=clock, settings=SETTINGS).topics
    assert (kept.records, kept.head_seq, kept.lost) == (1, 3, [(2, 3)])
    assert run.produce(engine_on(target, clock), "q", [b"4"]).reply.first_seq == 4


def test_carried_records_tell_which_of_their_neighbours_were_done() -> None:
    """The snapshot of a trimmed topic is damaged: what rewritten frames leave out is not called lost."""
    known = truth()
    [old] = [topic for topic in known.state.by_id.values() if topic.name == "old"]
    ranges = [found.event for found in known.frames if isinstance(found.event, Carried) and found.event.topic == old.id]
    disk = damaged_where(known, lambda event: isinstance(event, TopicCarried), all_of_them=True)
    _, report = salvage(known, disk)
    lost = {seq for topic_id, seq in named_lost(report) if topic_id == old.id}
    assert ranges
    assert all(lost.isdisjoint(range(event.lo, event.hi)) for event in ranges)


def test_a_topic_with_a_damaged_delete_does_not_come_back_where_its_name_was_given_again() -> None:
    known = truth()
    names = [found.event for found in known.frames if isinstance(found.event, TopicPut)]
    passing = [event.topic for event in names if event.name == "passing"]
    disk = damaged_where(known, lambda event: type(event).__name__ == "TopicDeleted", all_of_them=True)
    _, report = salvage(known, disk)
    assert [topic.id for topic in report.topics if topic.id in passing] == [passing[-1]]


def test_routers_go_on_behind_their_source_and_say_what_they_have_not_copied() -> None:
    disk, clock = SimDisk(1), ManualClock()
    engine = engine_on(disk, clock)
    run.put_topic(engine, "full", {"cap_records": 1, "discard": "reject"})
    run.produce(engine, "full", [b"0"])
    run.put_router(engine, "r", source="from", dest="full")
    run.produce(engine, "from", [b"1", b"2", b"3"])
    run.delete_records(engine, "from", seqs=[2])
    run.forward(engine, engine.state.topics["from"])
    engine.log.close()
    target = SimDisk(2)
    [router] = rebuild(disk, target, clock=clock, settings=SETTINGS).routers
    assert router.passed_over == [(1, 1), (3, 3)]
    assert engine_on(target, clock).state.routers["r"].cursor == 3


def test_a_salvage_cut_short_is_not_taken_for_a_whole_one() -> None:
    """Fault 20: until its last topic is declared the new directory is refused; before its first record it is empty."""
    known = truth()
    count_disk = SimDisk(9)
    rebuild(known.disk.kill(), count_disk, clock=known.clock, settings=SETTINGS)
    refused = 0
    for operation in range(1, count_disk.operations):
        target = SimDisk(9)
        target.fail_at(operation, "crash")
        with pytest.raises(PowerLoss):
            rebuild(known.disk.kill(), target, clock=known.clock, settings=SETTINGS)
        for world in (target.kill(), target.crash("lost")):
            try:
                state = engine_on(world, known.clock).state
            except Corrupt:
                refused += 1
                continue
            counts = {topic.id: topic.count for topic in state.by_id.values()}
            assert not sum(counts.values()) or counts == {each.id: each.count for each in known.state.by_id.values()}
    assert refused


def test_a_report_is_plain_data() -> None:
    known = truth()
    disk = damaged_where(known, lambda event: isinstance(event, TopicPut))
    _, report = salvage(known, disk)
    plain = msgspec.to_builtins(report)
    assert {"found", "topics", "routers", "given_up"} == set(plain)
    assert not report.complete
