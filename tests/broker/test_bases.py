"""Large bases: logged in parts while the topic goes on, and what is left of the log still shows everything."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from pyroaring import BitMap

import tenure.core.state.snapshot as snapshot
from tenure import Broker, Settings
from tenure.broker.durability.bases import begin_bases
from tenure.broker.durability.checkpoint_process import CheckpointProcess
from tenure.broker.durability.trim import is_all_deferred, trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.broker.salvage.rebuild import rebuild
from tenure.core.events import BasePart, TopicCarried, decode
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_state, dump_topic
from tenure.core.state.state import State
from tenure.core.state.topic import Topic
from tenure.log.base_file import BaseFile
from tenure.log.disk import PosixDisk
from tenure.log.log import FileLog
from tenure.log.memory import MemoryLog
from tenure.testing import ManualClock, SimDisk
from tests.core.test_fold import Story, refold
from tests.kit import run
from tests.kit.brokers import make_queue

TINY = Settings(segment_bytes=2048, spare_segments=1, trim_step_bytes=300, base_items_max=0)
MOVING = Settings(
    segment_bytes=1 << 14, spare_segments=1, sync_interval_ms=1, base_items_max=0, checkpoint_bytes=1 << 30
)


class Mover:
    """Trims a log whose bases all come in parts, a part at a time, between other things that happen."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = Random(seed)
        self.deferred = BitMap()
        self.parts: list[BasePart] = []
        self.moved = 0

    def step(self) -> None:
        """Trim as far as it goes without a base, then log one part or two."""
        engine = self.engine
        for _ in range(50):
            if not trim_due(engine) or is_all_deferred(engine, self.deferred):
                break
            trim_step(engine, self.deferred)
        if not self.parts and self.deferred:
            self._begin()
        for part in self.parts[: self.random.randint(1, 2)]:
            del self.parts[0]
            if part.topic in engine.state.by_id:
                engine.rewrite(part)
                self.moved += part.is_last
        if not self.parts:
            self.deferred.clear()

    def _begin(self) -> None:
        engine = self.engine
        begun = begin_bases(engine, self.deferred)
        for topic_id, segment in begun.items():
            data = dump_topic(engine.state.by_id[topic_id], now_ms=engine.state.log_ms)
            cuts = range(0, len(data), -(-len(data) // 3))
            for cut in cuts:
                part = data[cut : cut + cuts.step]
                self.parts.append(BasePart(engine.now(), topic_id, segment, cut, part, cut == cuts[-1]))


def told(state: State, now: int) -> list[bytes]:
    state.log_ms = now
    for topic in state.by_id.values():
        state.pass_time(topic, now)
    return [dump_state(state), *(dump_topic(topic, now_ms=now) for _, topic in sorted(state.by_id.items()))]


@pytest.mark.parametrize("seed", range(20))
def test_a_base_in_parts_and_what_happened_meanwhile_make_the_topic(seed: int) -> None:
    story = Story(seed, log=MemoryLog(segment_bytes=2048), settings=TINY, may_restart=False)
    mover = Mover(story.engine, seed)
    for turn in range(150):
        story.run(4)
        mover.step()
        if turn % 10 == 9:
            story.engine.write()
            replayed = refold(story.log, State())
            assert not replayed.orphans
            invariants(replayed)
            now = story.engine.now()
            live = snapshot.load_checkpoint(snapshot.dump_checkpoint(story.engine.state))
            assert told(replayed, now) == told(live, now)
    assert mover.moved > 3
    assert story.log.segments()[0].number > 2


async def test_no_large_base_is_written_out_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, real, threads = SimDisk(1), snapshot._topic_snapshot, set[str]()

    def noted(topic: Topic, now_ms: int) -> object:
        if topic.name == "q":
            threads.add(threading.current_thread().name.rpartition("_")[0])
        return real(topic, now_ms)

    clock = ManualClock()
    async with await Broker.open(disk, clock=clock, settings=MOVING) as broker:
        await make_queue(broker, jobs=50)
        await broker.claim("q", node="w", max_count=20, lease_ms=10**8)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "_topic_snapshot", noted)
            async with asyncio.timeout(60):
                while broker._engine.log.segments()[0].number < 4:
                    await broker.produce("filler", [b"." * 3000])
                    await broker.delete_records("filler", before_seq=1 << 40)
                    await broker.synced()
        engine = broker._engine
        events = [decode(kind, body) for kind, _, _, body in engine.log.replay()]
        topic_id = engine.state.topics["q"].id
        assert [event for event in events if isinstance(event, BasePart) and event.topic == topic_id]
        assert not [event for event in events if isinstance(event, TopicCarried) and event.topic == topic_id]
        assert threads == {"tenure-checkpoint"}
        held = broker.topic("q").queue
        assert not [name for name in disk.names() if name.endswith(".bases")]
    for name in [name for name in disk.names() if name.startswith("checkpoints/")]:
        disk.remove(name)
    async with await Broker.open(disk, clock=clock, settings=MOVING) as again:
        assert again.topic("q").queue == held


async def test_trimming_goes_on_where_no_base_can_be_made_beside_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class NoCheckpoints(SimDisk):
        def create(self, name: str) -> int:
            if name.startswith("checkpoints/"):
                raise OSError(28, "No space left on device")
            return super().create(name)

    disk = NoCheckpoints(1)
    async with await Broker.open(disk, settings=MOVING) as broker:
        await make_queue(broker, jobs=50)
        await broker.claim("q", node="w", max_count=20, lease_ms=10**8)
        async with asyncio.timeout(60):
            while broker._engine.log.segments()[0].number < 4:
                await broker.produce("filler", [b"." * 3000])
                await broker.delete_records("filler", before_seq=1 << 40)
                await broker.synced()
    assert "checkpoint could not be written" in caplog.text


def test_a_base_that_was_cut_short_counts_for_nothing() -> None:
    """The process ends after some parts; the next one begins again, and a replay takes the second."""
    disk, clock = SimDisk(1), ManualClock()
    engine = Engine(FileLog.open(disk, segment_bytes=2048), clock=clock, settings=TINY)
    engine.recover()
    run.produce(engine, "t", [b"kept"], idempotency_key="k")
    while len(engine.log.segments()) < 3:
        run.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
    [topic_id, segment] = next(iter(begin_bases(engine, [engine.state.topics["t"].id]).items()))
    engine.rewrite(BasePart(engine.now(), topic_id, segment, 0, b"nonsense", False))
    engine.sync()
    engine.log.close()
    engine = Engine(FileLog.open(disk, segment_bytes=2048), clock=clock, settings=TINY)
    engine.recover()
    mover = Mover(engine, 1)
    while engine.log.segments()[0].number < segment:
        run.produce(engine, "filler", [b"x" * 500])
        mover.step()
        engine.sync()
    engine.log.close()
    again = Engine(FileLog.open(disk, segment_bytes=2048), clock=clock, settings=TINY)
    again.recover()
    assert run.produce(again, "t", [b"kept"], idempotency_key="k").reply.first_seq == 1
    again.log.close()
    target = SimDisk(2)
    report = rebuild(disk, target, clock=clock, settings=TINY)
    assert {topic.topic: topic.records for topic in report.topics}["t"] == 1


def test_another_process_makes_the_bases_too(tmp_path: Path) -> None:
    engine = Engine(FileLog.open(PosixDisk(tmp_path)), clock=ManualClock(), settings=Settings())
    engine.recover()
    for name in ("q", "p"):
        run.produce(engine, name, [b"x"] * 10, config={"type": "queue"})
        run.claim(engine, name, node="w", max_count=4)
    made = CheckpointProcess(tmp_path, memory_bytes_max=1 << 30)
    made.open()
    begun = begin_bases(engine, [topic.id for topic in engine.state.by_id.values()])
    engine.sync()
    stop = engine.log.position()
    bases = made.write(stop, list(begun)).bases
    made.close()
    file, start = BaseFile(PosixDisk(tmp_path), stop.batch), 0
    for base in bases:
        data = file.read(start, base.end - start)
        assert data == dump_topic(engine.state.by_id[base.topic], now_ms=engine.state.log_ms)
        assert crc32c(data) == base.crc
        start = base.end
    assert [base.topic for base in bases] == list(begun)
    file.remove()
    assert not list(tmp_path.glob("checkpoints/*.bases"))
    engine.log.close()
