"""Giving space back: the log stays small, what is left of it tells everything, and trimming always comes to an end."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

import tenure.broker.durability.trim as trim_module
import tenure.broker.records as records
import tenure.log.memory as memory
from tenure import Broker, Record, Settings
from tenure.broker.durability.trim import _is_pinned, trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.broker.observing.pins import Pin
from tenure.broker.records import Reader
from tenure.contract.records import Stored
from tenure.core.state.frame_index import SegmentIndex
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_state, dump_topic
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.log.interface import Log, SegmentInfo
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.core.test_fold import Story, refold
from tests.kit import run
from tests.kit.brokers import datas, make_queue, numbers, read, reopen, tagged

SMALL = Settings(segment_bytes=2048, spare_segments=1, trim_step_bytes=300)


def make(settings: Settings = SMALL) -> Engine:
    engine = Engine(MemoryLog(segment_bytes=settings.segment_bytes), clock=ManualClock(), settings=settings)
    engine.recover()
    return engine


def trim(engine: Engine) -> int:
    """Trim until there is nothing more to do; how many steps it took."""
    steps = 0
    while trim_due(engine):
        steps += 1
        assert steps < 10_000, "trimming does not end"
        trim_step(engine)
    return steps


def log_bytes(engine: Engine) -> int:
    engine.write()
    return sum(segment.used_bytes for segment in engine.log.segments())


def contents(log: Log, state: State) -> Iterator[tuple[str, list[Stored]]]:
    """Every live record as the log can be read."""
    reader = Reader(log, cache_bytes_max=0)
    for topic in state.by_id.values():
        yield topic.name, reader.records(topic, topic.live_runs(topic.floor, topic.head_seq + 1))


def test_a_queue_that_is_worked_off_keeps_its_log_small() -> None:
    engine = make()
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(300):
        run.produce(engine, "q", [b"x" * 50] * 5)
        run.claim(engine, "q", node="w", max_count=5, auto_ack=True)
        engine.write()
        trim(engine)
        assert log_bytes(engine) < 4 * 2048


@pytest.mark.parametrize("size", [0, 1, 300])
def test_trimming_ends_however_much_lies_around_the_records(size: int) -> None:
    """Bare live bytes say little of what tiny records weigh: the log cannot get as small as twice of them."""
    engine = make()
    run.put_topic(engine, "t", {})
    for _ in range(300):
        run.produce(engine, "t", [b"x" * size])
        engine.write()
    trim(engine)
    assert not trim_due(engine)
    assert len(dict(contents(engine.log, engine.state))["t"]) == 300


def test_trimming_ends_where_a_topic_has_more_state_than_records() -> None:
    engine = make()
    run.put_topic(engine, "q", {"type": "queue"})
    for number in range(200):
        run.produce(engine, "q", [b""], idempotency_key=str(number), client_id=f"client-{number}", client_seq=1)
        run.claim(engine, "q", node="w", auto_ack=True)
        engine.write()
    trim(engine)
    before = log_bytes(engine)
    assert trim(engine) == 0
    assert engine.state.live_bytes == 0
    assert before > 2 * 2048, "its keys and marks alone are more than the spare segments"


def test_rewriting_stays_within_the_cost_of_having_written() -> None:
    """A full log of live records, and as much again that comes and goes: what trimming writes is of the same order."""
    engine = make(Settings(segment_bytes=4096, spare_segments=2, trim_step_bytes=1000))
    run.put_topic(engine, "keep", {})
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(100):
        run.produce(engine, "keep", [b"x" * 200])
    steps = produced = 0
    for _ in range(1000):
        run.produce(engine, "q", [b"x" * 200])
        produced += 200
        run.claim(engine, "q", node="w", auto_ack=True)
        engine.write()
        steps += trim(engine)
    assert 0 < steps * 1000 < 10 * produced
    assert log_bytes(engine) < 2 * 2 * (20_000 + 100 * 108) + 4 * 4096


@pytest.mark.parametrize("count", [1, 5])
def test_a_step_moves_no_more_than_its_budget(count: int) -> None:
    """Other work waits for a step: beyond its budget it writes the frame that went over it, and no more."""
    settings = Settings(segment_bytes=1 << 16, spare_segments=1, trim_step_bytes=2_000)
    engine = make(settings)
    run.put_topic(engine, "keep", {})
    run.put_topic(engine, "go", {})
    while len(engine.log.segments()) < 4:
        run.produce(engine, "keep", [b"x" * 100] * count)
        run.produce(engine, "go", [b"x" * 1_000])
        engine.write()
    run.delete_records(engine, "go", before_seq=1 << 40)
    steps = 0
    while trim_due(engine):
        before = engine.rewritten_bytes
        trim_step(engine)
        steps += 1
        assert engine.rewritten_bytes - before < 2_000 + count * 200 + 500
    assert steps > 3


def test_a_step_looks_at_no_more_frames_than_its_budget_allows() -> None:
    """Dead frames above the floor cost nothing to drop, but a look each."""
    engine = make(Settings(segment_bytes=1 << 16, spare_segments=1, trim_step_bytes=2_000))
    run.put_topic(engine, "t", {})
    for _ in range(400):
        run.produce(engine, "t", [b"x" * 400])
        engine.write()
    run.delete_records(engine, "t", seqs=list(range(2, 398)))
    topic = engine.state.topics["t"]
    while trim_due(engine):
        before = sum(len(entry.firsts) for entry in topic.frame_index)
        trim_step(engine)
        assert before - sum(len(entry.firsts) for entry in topic.frame_index) <= 2_000 // 64 + 1


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("large_bytes", [1, 1 << 16])
def test_what_is_left_of_the_log_tells_everything(seed: int, large_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every append counts as large: read in parts, and rewritten in parts."""
    monkeypatch.setattr(records, "LARGE_BYTES", large_bytes)
    settings = SMALL if large_bytes > 1 else msgspec.structs.replace(SMALL, trim_step_bytes=8)
    story = Story(seed, log=MemoryLog(segment_bytes=2048), settings=settings, may_restart=large_bytes > 1)
    for _ in range(40):
        story.run(10)
        trim(story.engine)
        invariants(story.engine.state)
    story.now = story.engine.now()
    story.engine.write()
    assert story.log.segments()[0].number > 1, "something was dropped"
    live, replayed = story.engine.state, refold(story.log, State())
    invariants(replayed)
    assert live.by_id.keys() == replayed.by_id.keys()
    for state in (live, replayed):
        state.log_ms = story.now
        for topic in state.by_id.values():
            state.pass_time(topic, story.now)
    assert dump_state(live) == dump_state(replayed)
    for topic_id, topic in live.by_id.items():
        assert dump_topic(topic, now_ms=story.now) == dump_topic(replayed.by_id[topic_id], now_ms=story.now)
    assert dict(contents(story.log, live)) == dict(contents(story.log, replayed))


async def test_an_open_broker_trims_by_itself_and_loses_nothing(clock: ManualClock) -> None:
    log = MemoryLog(segment_bytes=4096)
    settings = Settings(segment_bytes=4096, spare_segments=1, trim_step_bytes=500)
    broker = await Broker.open(log, clock=clock, settings=settings)
    await make_queue(broker, durability="fsync", dlq_strategy="block")
    await broker.produce("q", [*tagged("keep"), b"parked", b"held"], idempotency_key="k")
    await broker.produce("q", [Record(data=b"later", delay_ms=10**7)], client_id="c", client_seq=3)
    await broker.claim("q", node="a", max_count=3, lease_ms=10**7)
    await broker.nack("q", node="a", seqs=[1], reason="try again")
    await broker.nack("q", node="a", seqs=[2], dead=True)
    for number in range(200):
        await broker.produce("q", [b"%d" % number] * 5)
        await broker.ack("q", node="b", seqs=(await broker.claim("q", node="b", max_count=6)).seqs[1:])
        await broker.nack("q", node="b", seqs=[1], delay_ms=0)
    assert log.segments()[0].number > 5
    assert len(log.segments()) < 8
    counted = numbers(broker)
    async with await reopen(broker, log, clock) as broker:
        assert numbers(broker) == counted
        assert datas(await read(broker, "q"))[:4] == [b"keep", b"parked", b"held", b"later"]
        assert (await broker.produce("q", [*tagged("keep"), b"parked", b"held"], idempotency_key="k")).first_seq == 1
        assert (await broker.delete_records("q", match="keep")).deleted == 1


def test_a_reader_that_has_come_to_the_second_segment_does_not_keep_the_first() -> None:
    engine = make()
    while len(engine.log.segments()) < 3:
        run.produce(engine, "t", [Record(data=b"x" * 300)])
        engine.write()
    second = engine.log.segments()[1].first_batch
    engine.pin = Pin(second - 1, 1 << 30)
    assert _is_pinned(engine, 0)
    engine.pin = Pin(second, 1 << 30)
    assert not _is_pinned(engine, 0)


class TickingClock(ManualClock):
    """A clock on which each look at the time since boot takes a millisecond, while ``ticks`` is set."""

    ticks = False

    def boot_ms(self) -> int:
        self._boot_ms += self.ticks
        return super().boot_ms()


@pytest.mark.parametrize("step_ms", [1, 5, 20])
def test_a_step_ends_when_its_time_is_over(step_ms: int) -> None:
    """However many bytes its budget has left: with tiny appends these say little about the time that they take."""
    settings = Settings(segment_bytes=1 << 15, spare_segments=1, trim_step_bytes=1 << 20, trim_step_ms=step_ms)
    clock = TickingClock()
    engine = Engine(MemoryLog(segment_bytes=settings.segment_bytes), clock=clock, settings=settings)
    engine.recover()
    while len(engine.log.segments()) < 4:
        run.produce(engine, "t", [b"x"])
    run.delete_records(engine, "t", seqs=list(range(2, engine.state.topics["t"].head_seq, 2)))
    for number in range(50):
        run.produce(engine, f"t{number}", [b"x"])
    engine.turn_ms = engine.now()
    clock.ticks, first = True, engine.log.segments()[0].number
    topic, steps = engine.state.topics["t"], 0
    while engine.log.segments()[0].number == first:
        before = sum(len(entry.firsts) for entry in topic.frame_index)
        trim_step(engine)
        assert before - sum(len(entry.firsts) for entry in topic.frame_index) <= step_ms
        steps += 1
    assert steps > 5
    clock.ticks = False
    assert engine.state.topics["t"].count == len(Reader(engine.log, 0).readable(topic, topic.live_runs(1, 1 << 40))[0])


def test_bases_of_many_topics_are_rewritten_in_steps_too() -> None:
    settings = Settings(segment_bytes=1 << 15, spare_segments=1, trim_step_bytes=1 << 20, trim_step_ms=4)
    clock = TickingClock()
    engine = Engine(MemoryLog(segment_bytes=settings.segment_bytes), clock=clock, settings=settings)
    engine.recover()
    for number in range(200):
        run.put_topic(engine, f"t{number}", {})
    while len(engine.log.segments()) < 3:
        run.produce(engine, "filler", [b"." * 1000])
    engine.turn_ms = engine.now()
    clock.ticks, first, moved = True, engine.log.segments()[0].number, list[int]()
    while engine.log.segments()[0].number == first:
        before = sum(topic.base == first for topic in engine.state.by_id.values())
        trim_step(engine)
        moved.append(before - sum(topic.base == first for topic in engine.state.by_id.values()))
    assert sum(moved) > 200
    assert max(moved) <= settings.trim_step_ms


def test_whether_trimming_is_due_costs_the_same_with_many_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked after every sync."""
    engine, made = make(), list[int]()
    while len(engine.log.segments()) < 60:
        run.produce(engine, "t", [b"x" * 500])
    engine.write()

    def info(number: int, used_bytes: int, first_batch: int) -> SegmentInfo:
        made.append(number)
        return SegmentInfo(number, used_bytes, first_batch)

    monkeypatch.setattr(memory, "SegmentInfo", info)
    trim_due(engine)
    assert len(made) <= 4


def test_a_full_disk_looks_at_each_topic_of_the_oldest_segment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, looks = make(Settings(segment_bytes=1 << 16)), list[int]()
    for number in range(100):
        run.produce(engine, f"t{number}", [b"x"])
    while len(engine.log.segments()) < 3:
        run.produce(engine, "filler", [b"." * 1000])
    for number in range(99):
        run.delete_records(engine, f"t{number}", before_seq=2)
    engine.log.crowded, real = True, trim_module._seq_after

    def seq_after(topic: Topic, entry: SegmentIndex) -> int:
        looks.append(topic.id)
        return real(topic, entry)

    monkeypatch.setattr(trim_module, "_seq_after", seq_after)
    for _ in range(10):
        assert not trim_due(engine)
    assert len(looks) <= 120
    run.delete_records(engine, "t99", before_seq=2)
    run.delete_records(engine, "filler", before_seq=1 << 40)
    assert trim_due(engine)


def oldest_ready_ms(engine: Engine) -> int:
    counts = run.topic_info(engine, "q").queue
    assert counts is not None
    assert counts.oldest_ready_ms is not None
    return counts.oldest_ready_ms


def test_the_age_of_the_next_job_is_right_to_a_hundredth_after_its_frame_was_merged() -> None:
    """A day of jobs, one every ten seconds, that are rewritten over and over and worked off from the oldest."""
    clock = ManualClock()
    settings = Settings(segment_bytes=1 << 14, spare_segments=1, trim_step_bytes=1 << 20)
    engine = Engine(MemoryLog(segment_bytes=settings.segment_bytes), clock=clock, settings=settings)
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue"})
    appended = []
    for _ in range(8_640):
        appended.append(clock.wall_ms())
        run.produce(engine, "q", [b"x"])
        engine.write()
        trim(engine)
        clock.advance(10_000)
    frames = sum(len(entry.firsts) for entry in engine.state.topics["q"].frame_index)
    assert frames < 8_640 / 2, "most were merged"
    for seq in range(1, 8_641, 7):
        age_ms, shown_ms = clock.wall_ms() - appended[seq - 1], oldest_ready_ms(engine)
        assert age_ms - max(1_000, age_ms // 100) <= shown_ms <= age_ms
        assert run.claim(engine, "q", node="w", max_count=7, auto_ack=True).reply.seqs[0] == seq
        if seq % 70 == 1:
            trim(engine)


def test_a_job_that_comes_back_is_as_old_as_its_append(clock: ManualClock) -> None:
    engine = Engine(MemoryLog(), clock=clock, settings=SMALL)
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue", "lease_ms": 3_600_000})
    for data in (b"1", b"2", b"3"):
        run.produce(engine, "q", [data])
        clock.advance(60_000)
    run.claim(engine, "q", node="w", max_count=2)
    assert oldest_ready_ms(engine) == 60_000
    clock.advance(600_000)
    run.nack(engine, "q", node="w", seqs=[2])
    assert oldest_ready_ms(engine) == 720_000


@pytest.mark.parametrize(("sizes", "first"), [([300] * 4, 4), ([300, 300, 300, 0], 4), ([300, 300, 900, 0], 3)])
def test_the_last_records_of_a_large_append_leave_nothing_of_it_behind(
    sizes: list[int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rest without records would be looked at for ever; one of an empty record must not be lost."""
    monkeypatch.setattr(records, "LARGE_BYTES", 1)
    monkeypatch.setattr(records, "_YOUNG_BYTES", 1)
    engine = make()
    run.put_topic(engine, "t", {})
    run.produce(engine, "t", [b"x" * size for size in sizes])
    run.delete_records(engine, "t", before_seq=first)
    for _ in range(30):
        run.produce(engine, "t", [b"y" * 300])
        run.delete_records(engine, "t", seqs=[engine.state.topics["t"].head_seq])
        engine.write()
        trim(engine)
    assert engine.log.segments()[0].number > 1
    assert [len(record.data) for record in dict(contents(engine.log, engine.state))["t"]] == sizes[first - 1 :]
    invariants(engine.state)
