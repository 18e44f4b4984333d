"""What a broker does for itself beside its callers: nothing of it holds them up, and no error is the end of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading

import pytest
from pyroaring import BitMap

import tenure.broker.durability.upkeep as upkeep
from tenure import Broker, Indeterminate, Overloaded, Settings
from tenure.broker.answer import Answer
from tenure.broker.durability.trim import trim_step
from tenure.broker.engine import Engine
from tenure.log.log import FileLog
from tenure.testing import ManualClock, SimDisk
from tests.kit import run
from tests.kit.brokers import make_queue, start

SMALL = Settings(segment_bytes=1 << 14, spare_segments=1, sync_interval_ms=1, trim_step_bytes=1 << 12)


class GatedDisk(SimDisk):
    """A disk that makes everybody wait while its gate is shut; the loop's own thread must never have to."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = threading.Event()
        self.gate.set()
        self.waited = 0

    def sync(self, file: int) -> None:
        self._wait()
        super().sync(file)

    def sync_dir(self, name: str) -> None:
        self._wait()
        super().sync_dir(name)

    def _wait(self) -> None:
        if not self.gate.is_set():
            assert threading.current_thread() is not threading.main_thread(), "the loop waits for the disk"
            self.waited += 1
            assert self.gate.wait(30), "a test left the gate shut"


async def test_the_loop_goes_on_while_rolls_and_drops_wait_for_the_disk() -> None:
    """Fault 15: a sync takes as long as the disk takes, so one that rolls or drops never runs on the loop."""
    disk = GatedDisk()
    async with await Broker.open(disk, settings=SMALL) as broker:
        await make_queue(broker, durability="disk")
        log = broker._engine.log
        for _ in range(40):
            await broker.produce("q", [b"x" * 1000])
        dropped = log.segments()[0].number
        disk.gate.clear()
        while len(log.segments()) < 8:
            await broker.produce("q", [b"x" * 1000])
        while (claim := await broker.claim("q", node="w", max_count=10)).jobs:
            await broker.ack("q", node="w", seqs=claim.seqs)
        while not disk.waited:
            await asyncio.sleep(0.001)
        assert disk.waited == 1, "one sync waits, on its own thread"
        disk.gate.set()
        await broker.synced()
        while log.segments()[0].number == dropped:
            await asyncio.sleep(0.001)


async def test_what_was_acknowledged_in_the_turn_of_a_roll_can_be_seen_at_once() -> None:
    disk = SimDisk(1)
    async with await Broker.open(disk, settings=SMALL) as broker:
        await make_queue(broker, durability="fsync")
        rolls = 0
        for _ in range(40):
            before = len(broker._engine.log.segments())
            produced = broker.produce("q", [b"job"])
            filler = broker.produce("filler", [b"." * 5000])
            rolls += len(broker._engine.log.segments()) > before
            seq = (await produced).first_seq
            assert (await broker.claim("q", node="w")).seqs == [seq]
            await filler
        assert rolls > 5


def test_records_before_a_roll_are_durable_with_the_batch_that_the_roll_ended() -> None:
    """A sync that begins before the turn is over covers only what the roll has written."""
    engine = Engine(FileLog.open(SimDisk(1), segment_bytes=1 << 14), clock=ManualClock(), settings=SMALL)
    engine.recover()
    run.put_topic(engine, "q", {"type": "queue", "durability": "fsync"})
    engine.sync()
    run.produce(engine, "q", [b"job"])
    while len(engine.log.segments()) == 1:
        run.produce(engine, "filler", [b"." * 1000])
    sync = engine.log.begin_sync()
    sync.run()
    engine.synced(engine.log.end_sync(sync))
    assert engine.log.synced_batch < engine.log.pending_batch
    assert engine.state.topics["q"].durable_seq == 1


async def test_whoever_waits_hears_of_a_sync_that_upkeep_asked_for() -> None:
    """An fsync produce of the turn in which trimming drops a segment is answered with that very sync."""
    disk = SimDisk(1)
    async with await Broker.open(disk, settings=SMALL) as broker:
        await make_queue(broker, durability="fsync")
        answers = []
        real = trim_step

        def step(engine: Engine, deferred: BitMap | None = None) -> int:
            answers.append(asyncio.ensure_future(broker.produce("q", [b"job"])))
            return real(engine)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upkeep, "trim_step", step)
            for _ in range(40):
                await broker.produce("filler", [b"." * 5000])
                await broker.delete_records("filler", before_seq=1 << 40)
                await broker.synced()
        assert answers
        await asyncio.wait_for(asyncio.gather(*answers), 10)


async def test_the_next_segment_is_dropped_once_the_drop_before_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, drops = GatedDisk(), list[int]()
    async with await Broker.open(disk, settings=SMALL) as broker:

        def step(engine: Engine, deferred: BitMap | None = None) -> int:
            if batch := trim_step(engine):
                drops.append(batch)
                if len(drops) == 1:
                    disk.gate.clear()
            return batch

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upkeep, "trim_due", lambda engine: False)
            for _ in range(40):
                await broker.produce("t", [b"." * 5000])
                await broker.delete_records("t", before_seq=1 << 40)
            await broker.synced()
        monkeypatch.setattr(upkeep, "trim_step", step)
        await broker.produce("t", [b"."])
        async with asyncio.timeout(30):
            while not drops:
                await asyncio.sleep(0.001)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(drops) == 1
        disk.gate.set()
        async with asyncio.timeout(30):
            while len(drops) < 3:
                await asyncio.sleep(0.001)


async def test_checkpoints_are_left_while_the_broker_is_open(clock: ManualClock) -> None:
    disk = SimDisk(1)
    settings = Settings(checkpoint_bytes=4096, sync_interval_ms=1)
    async with await Broker.open(disk, clock=clock, settings=settings) as broker:
        await make_queue(broker)
        for _ in range(100):
            await broker.produce("q", [b"x" * 1000])
            await broker.synced()
        async with asyncio.timeout(30):
            while not any(name.startswith("checkpoints/") for name in disk.names()):
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(errno.EIO, "a disk"), MemoryError()])
async def test_upkeep_that_ends_in_any_error_is_logged_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Broker.open(SimDisk(1), settings=SMALL) as broker:
        real, calls = trim_step, 0

        def failing(engine: Engine, deferred: BitMap | None = None) -> int:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise error
            return real(engine)

        monkeypatch.setattr(upkeep, "trim_step", failing)
        with caplog.at_level(logging.ERROR, "tenure.broker"):
            for _ in range(40):
                await broker.produce("t", [b"." * 5000])
                await broker.delete_records("t", before_seq=1 << 40)
                await broker.synced()
        assert "upkeep ended in an error" in caplog.text
        assert broker._engine.log.segments()[0].number > 1, "it went on"


async def test_a_close_that_was_cancelled_is_finished_by_the_next() -> None:
    disk, before = GatedDisk(), set(threading.enumerate())
    broker = await Broker.open(disk)
    await make_queue(broker)
    broker.produce("q", [b"job"])
    disk.gate.clear()
    closing = await start(broker.close())
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    disk.gate.set()
    await broker.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("tenure-sync")]
    async with await Broker.open(disk) as again:
        assert again.topic("q").count == 1


async def test_a_write_that_was_made_is_answered_although_a_later_one_failed() -> None:
    """A roll in the middle of a turn has written what came before it; only what follows is unknown."""
    disk = SimDisk(1)
    broker = await Broker.open(disk, settings=SMALL)
    await broker.put_topic("t", {"durability": "disk"})
    first, second = broker.produce("t", [b"." * 9000]), broker.produce("t", [b"." * 9000])
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert first.batch < second.batch

    def failing(file: int, data: bytes, offset: int) -> int:
        raise OSError(errno.EIO, "I/O error")

    disk.pwrite = failing  # type: ignore[method-assign]
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert answers[0] is first.reply
    assert isinstance(answers[1], Indeterminate)
    await broker.close()


async def test_an_answer_that_cannot_be_given_keeps_no_other_from_its_caller() -> None:
    async with await Broker.open(SimDisk(1)) as broker:
        await broker.put_topic("t", {"durability": "fsync"})
        answer, reached = broker.produce("t", [b"1"]), list[str]()
        assert isinstance(answer, Answer)

        def failing(_: object) -> None:
            reached.append("first")
            raise RuntimeError("a bug of a caller")

        broker._serving.committer.when_reached(answer.batch, answer.level, failing)
        broker._serving.committer.when_reached(answer.batch, answer.level, lambda _: reached.append("second"))
        await answer
        assert reached == ["first", "second"]
        await broker.produce("t", [b"2"])


async def test_a_silent_log_notes_the_time_at_its_end(clock: ManualClock) -> None:
    disk = SimDisk(1)
    async with await Broker.open(disk, clock=clock) as broker:
        await make_queue(broker)
        clock.advance(5 * 86_400_000)
    clock.reboot(off_ms=1000)
    async with await Broker.open(disk, clock=clock) as again:
        assert again._engine.now() == clock.wall_ms(), "none of the five days is missing"


class AllocatingDisk(SimDisk):
    """A disk that notes in which threads room was allocated."""

    def __init__(self) -> None:
        super().__init__(1)
        self.threads: list[str] = []

    def allocate(self, file: int, size: int) -> None:
        self.threads.append(threading.current_thread().name)
        super().allocate(file, size)


async def test_the_next_segment_is_allocated_before_it_is_needed() -> None:
    """Neither a produce that rolls, nor a sync, waits until the disk has made room for another segment."""
    disk = AllocatingDisk()
    settings = Settings(segment_bytes=1 << 14, spare_segments=1 << 10, sync_interval_ms=1)
    async with await Broker.open(disk, settings=settings) as broker:
        disk.threads.clear()
        await make_queue(broker, durability="fsync")
        log = broker._engine.log
        assert isinstance(log, FileLog)
        async with asyncio.timeout(60):
            while len(log.segments()) < 8:
                await broker.produce("q", [b"x" * 500])
                while broker._upkeep._tasks:
                    await asyncio.sleep(0.001)
        assert disk.threads
        assert {name.rpartition("_")[0] for name in disk.threads} == {"tenure-spares"}
        assert len(log._spares) <= log._room.kept_soon + 1


async def test_trimming_without_room_waits_for_the_sync_that_frees_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full segment keeps its unused end until its sync: on a full disk that may be what the next step needs."""
    refused = 0

    def step(engine: Engine, deferred: BitMap | None = None) -> int:
        nonlocal refused
        if engine.log.sync_frees_room:
            refused += 1
            raise Overloaded("no room for another segment", code="disk_full")
        return trim_step(engine, deferred)

    monkeypatch.setattr(upkeep, "trim_step", step)
    disk = GatedDisk()
    async with await Broker.open(disk, settings=SMALL) as broker, asyncio.timeout(30):
        await make_queue(broker, durability="disk")
        log, broker._upkeep._trimming = broker._engine.log, True
        disk.gate.clear()
        while len(log.segments()) < 6:
            await broker.produce("q", [b"x" * 1000])
            await broker.ack("q", node="w", seqs=(await broker.claim("q", node="w")).seqs)
        broker._upkeep._trimming = False
        broker._upkeep._after_sync()
        while not refused:
            await asyncio.sleep(0)
        disk.gate.set()
        while broker._upkeep._tasks:
            await asyncio.sleep(0)
        assert log.segments()[0].number > 1
    assert "cannot be trimmed" not in caplog.text


def test_a_disk_that_refuses_a_segment_ahead_of_time_is_asked_once() -> None:
    disk = SimDisk(1, capacity_bytes=3 * (1 << 14) + 5000)
    log = FileLog.open(disk, segment_bytes=1 << 14)
    for _ in log.replay():
        pass
    log.reserve(1 << 13)
    asked = 0
    for _ in range(28):
        log.append_one(20, 1, b"x" * 500)
        log.sync()
        if log.spares_due():
            asked += 1
            log.prepare_spares()
    assert 1 <= asked <= 4
    assert len(log.segments()) == 1
    log.close()
