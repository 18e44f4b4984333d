"""Checkpoints of an open broker: made from the log, beside the loop and the syncs, and equal to the state."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

import pytest

import tenure.core.state.snapshot as snapshot
from tenure import Broker, Settings
from tenure.broker.durability.checkpoint_fold import CheckpointFold
from tenure.broker.durability.checkpoint_process import CheckpointProcess
from tenure.broker.durability.trim import trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.errors import Closed, Overloaded
from tenure.log import checkpoint
from tenure.log.disk import PosixDisk
from tenure.log.log import FileLog
from tenure.testing import ManualClock, SimDisk
from tests.core.test_fold import Story
from tests.kit import run
from tests.kit.brokers import make_queue
from tests.model.machine import assert_same, dumped, let_pass

OFTEN = Settings(checkpoint_bytes=4096, sync_interval_ms=1)
TINY = Settings(segment_bytes=2048, spare_segments=1, trim_step_bytes=300)


def names(disk: SimDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".checkpoint")]


async def until_checkpointed(broker: Broker, disk: SimDisk) -> None:
    async with asyncio.timeout(60):
        while not names(disk):
            await broker.produce("q", [b"x" * 1000])
            await broker.synced()


async def test_no_topic_is_written_out_on_the_loop_for_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, real, threads = SimDisk(1), snapshot._topic_snapshot, list[threading.Thread]()

    def noted(*args: object) -> object:
        threads.append(threading.current_thread())
        return real(*args)  # type: ignore[arg-type]

    async with await Broker.open(disk, settings=OFTEN) as broker:
        await make_queue(broker)
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "_topic_snapshot", noted)
            await until_checkpointed(broker, disk)
        assert threads
        assert threading.main_thread() not in threads


class SlowCheckpoints(SimDisk):
    """A disk on which the file of a checkpoint is not created before the gate opens."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = threading.Event()
        self.is_waiting = threading.Event()

    def create(self, name: str) -> int:
        if name.startswith("checkpoints/"):
            self.is_waiting.set()
            assert self.gate.wait(60), "a test left the gate shut"
        return super().create(name)


async def test_no_sync_waits_for_a_checkpoint_that_is_being_saved() -> None:
    disk = SlowCheckpoints()
    async with await Broker.open(disk, settings=OFTEN) as broker:
        await make_queue(broker, durability="fsync")
        try:
            async with asyncio.timeout(60):
                while not disk.is_waiting.is_set():
                    await broker.produce("q", [b"x" * 1000])
                for _ in range(20):
                    await broker.produce("q", [b"answered while the checkpoint waits for its disk"])
            assert not names(disk)
        finally:
            disk.gate.set()
        await until_checkpointed(broker, disk)


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_made_from_the_log_equals_the_state(seed: int) -> None:
    """Segments are dropped while it is made; each one goes on from the one before where the log still contains that."""
    disk = SimDisk(seed)
    story = Story(seed, log=FileLog.open(disk, segment_bytes=2048), settings=TINY, may_restart=False)
    for _ in range(30):
        story.run(10)
        made = CheckpointFold(disk)
        made.open()
        story.run(1)
        story.engine.sync()
        stop = story.engine.log.position()
        live = load_checkpoint(dump_checkpoint(story.engine.state))
        for _ in range(200):
            is_held = story.engine.log.segments()[0].number < stop.segment
            if not trim_due(story.engine) or not is_held:
                break
            trim_step(story.engine)
        story.engine.sync()
        made.write(stop)
        checkpoint.publish(disk, stop)
        position, payload = next(checkpoint.load(disk))
        assert position == stop
        folded, now = load_checkpoint(payload), story.engine.clock_ms()
        for state in (folded, live):
            let_pass(state, now)
        assert_same(dumped(folded, now), dumped(live, now))
    assert story.engine.log.segments()[0].number > 1, "something was dropped"


def test_segments_that_are_dropped_meanwhile_are_not_missed() -> None:
    disk = SimDisk(1)
    engine = Engine(FileLog.open(disk, segment_bytes=2048), clock=ManualClock(), settings=TINY)
    engine.recover()
    run.produce(engine, "kept", [b"kept"])
    engine.sync()
    made = CheckpointFold(disk)
    made.open()
    engine.sync()
    stop, state = engine.log.position(), dump_checkpoint(engine.state)
    while engine.log.segments()[0].number == 1:
        run.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
        engine.sync()
        if len(engine.log.segments()) > 1:
            trim_step(engine)
    engine.sync()
    assert "segments/0000000001.log" not in disk.names()
    assert made.write(stop).size == len(state)
    checkpoint.publish(disk, stop)
    assert [payload for _, payload in checkpoint.load(disk)] == [state]


def test_a_checkpoint_that_is_given_up_leaves_nothing() -> None:
    disk = SimDisk(1)
    engine = Engine(FileLog.open(disk), clock=ManualClock(), settings=Settings())
    engine.recover()
    run.produce(engine, "t", [b"x"])
    engine.sync()
    made = CheckpointFold(disk)
    made.open()
    made.abort()
    with pytest.raises(Closed):
        made.write(engine.log.position())
    assert not [name for name in disk.names() if name.startswith("checkpoints/")]


# The process


def filled(directory: Path) -> Engine:
    engine = Engine(FileLog.open(PosixDisk(directory)), clock=ManualClock(), settings=Settings())
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue"})
    for _ in range(10):
        run.produce(engine, "q", [b"x"] * 10)
        run.claim(engine, "q", node="w", max_count=3)
    engine.sync()
    return engine


def test_another_process_makes_the_same_checkpoint(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    made = CheckpointProcess(tmp_path, memory_bytes_max=1 << 30)
    try:
        made.open()
        stop = engine.log.position()
        made.write(stop)
    finally:
        made.close()
    assert not list(checkpoint.load(PosixDisk(tmp_path))), "only the owner of the directory publishes it"
    checkpoint.publish(PosixDisk(tmp_path), stop)
    assert list(checkpoint.load(PosixDisk(tmp_path))) == [(stop, engine.checkpoint())]
    engine.log.close()


def test_a_process_that_may_not_take_the_memory_says_so(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    made = CheckpointProcess(tmp_path, memory_bytes_max=1 << 20)

    def make() -> None:
        made.open()
        made.write(engine.log.position())

    with pytest.raises(Overloaded, match="no checkpoint was made"):
        make()
    made.close()
    engine.log.close()


async def test_a_broker_goes_on_where_no_checkpoint_can_be_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(checkpoint_bytes=4096, checkpoint_memory_bytes_max=1 << 20, sync_interval_ms=1)
    async with await Broker.open(tmp_path, settings=settings) as broker:
        await make_queue(broker)
        with caplog.at_level(logging.WARNING, "tenure.broker"):
            async with asyncio.timeout(60):
                while "no checkpoint was made" not in caplog.text:
                    await broker.produce("q", [b"x" * 1000])
                    await broker.synced()
    async with await Broker.open(tmp_path) as again:
        assert again.topic("q").count


async def test_closing_does_not_wait_for_a_checkpoint_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = list[CheckpointProcess]()
    real = CheckpointProcess.open

    def noted(self: CheckpointProcess) -> None:
        opened.append(self)
        real(self)

    monkeypatch.setattr(CheckpointProcess, "open", noted)
    async with await Broker.open(tmp_path, settings=OFTEN) as broker:
        await make_queue(broker)
        async with asyncio.timeout(60):
            while not opened:
                await broker.produce("q", [b"x" * 1000])
                await broker.synced()
    process = opened[0]._process
    assert process is not None
    assert process.returncode is not None
    assert not caplog.records, "nobody is warned of a checkpoint that was given up to close"
    assert len(list(checkpoint.load(PosixDisk(tmp_path)))) == 1
