"""Upgrade and roll back: two versions on one directory, in both orders, before and after the upgrade is finalized."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tenure import Broker, Settings
from tenure.broker.durability.checkpoint_fold import CheckpointFold
from tenure.broker.durability.trim import trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.broker.upgrade import finalize_closed
from tenure.contract.replies import FeatureInfo
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.core.state.state import State
from tenure.errors import Closed, Conflict, Corrupt, Indeterminate
from tenure.log import FileLog, PosixDisk, checkpoint
from tenure.log.disk import Disk, File
from tenure.log.features import FEATURES, Feature
from tenure.testing import ManualClock, SimDisk
from tests.core.test_fold import Story, at_one_time, refold
from tests.kit import run
from tests.kit.brokers import start, turn
from tests.kit.versions import NEWER, OLDER, ROUTERS_KINDS

TINY = Settings(segment_bytes=2048, spare_segments=1, trim_step_bytes=300)


def log_of(disk: Disk, known: Sequence[Feature]) -> FileLog:
    return FileLog.open(disk, segment_bytes=TINY.segment_bytes, known=known)


def opened(disk: Disk, known: Sequence[Feature]) -> Engine:
    """An engine as that version opens it, from its checkpoint."""
    engine = Engine(log_of(disk, known), clock=ManualClock(), settings=TINY)
    engine.recover(checkpoint.load(disk))
    return engine


def closed(engine: Engine, disk: Disk) -> None:
    """Close an engine as a broker does, with a checkpoint."""
    engine.sync()
    checkpoint.save(disk, engine.log.position(), engine.checkpoint())
    engine.log.close()


def work(engine: Engine, count: int = 10) -> None:
    """Live a little: jobs come, some are held, some end, and the log is rolled and trimmed."""
    run.put_topic(engine, "q", {"type": "queue", "durability": "fsync"})
    for _ in range(count):
        run.produce(engine, "q", [b'"%s"' % (b"x" * 200)])
    engine.sync()
    claim = run.claim(engine, "q", node="w", max_count=count - 2).reply
    run.ack(engine, "q", node="w", seqs=claim.seqs[: count - 4])
    engine.sync()
    while trim_due(engine):
        trim_step(engine)
        engine.sync()


def made_by(known: Sequence[Feature], disk: Disk | None = None) -> Disk:
    disk = SimDisk(1) if disk is None else disk
    engine = opened(disk, known)
    work(engine)
    closed(engine, disk)
    return disk


def kinds_in(engine: Engine) -> set[int]:
    engine.write()
    return {kind for kind, *_ in engine.log.replay()}


def test_what_a_feature_covers_is_refused_while_it_is_off_and_nothing_changes() -> None:
    engine = opened(made_by(OLDER), NEWER)
    before, position = dump_checkpoint(engine.state), engine.log.position()
    with pytest.raises(Conflict, match=r"gadgets.*tenure upgrade finalize") as refused:
        run.put_router(engine, "r", source="q", dest="copies")
    assert (refused.value.code, refused.value.detail) == ("feature_off", {"feature": "gadgets"})
    engine.write()
    assert (dump_checkpoint(engine.state), engine.log.position()) == (before, position)
    engine.turn_on_features()
    run.put_router(engine, "r", source="q", dest="q2")
    assert kinds_in(engine) & ROUTERS_KINDS


def test_before_it_is_finalized_an_upgrade_can_be_rolled_back_and_repeated() -> None:
    disk = made_by(OLDER)
    for known in (NEWER, OLDER, NEWER, OLDER):
        engine = opened(disk, known)
        work(engine)
        state = dump_checkpoint(engine.state)
        assert not kinds_in(engine) & ROUTERS_KINDS
        closed(engine, disk)
        other = opened(disk, OLDER if known is NEWER else NEWER)
        assert len(other.state.topics["q"].frame_index) > 0
        run.put_topic(other, "seen", {"type": "log"})
        assert other.state.topics["q"].count == count_of(state)
        closed(other, disk)


def count_of(dump: bytes) -> int:
    return load_checkpoint(dump).topics["q"].count


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_asked_of_a_newer_version_an_older_one_reads_its_log_while_features_are_off(seed: int) -> None:
    """A walk through every command, claims that isolate among them; the older version knows no feature at all."""
    disk = made_by(())
    story = Story(seed, log=log_of(disk, FEATURES), settings=TINY, may_restart=False)
    story.run(250)
    newer = story.engine
    run.put_topic(newer, "last", {"type": "queue"})
    run.produce(newer, "last", [b"1"])
    claimed = run.claim(newer, "last", node="w", isolate=True, group="g", lease_ms=10**9).reply
    assert (claimed.seqs, newer.state.features) == ([1], frozenset())
    newer.write()
    assert not kinds_in(newer) & set().union(*(feature.kinds for feature in FEATURES))
    now = newer.now()
    closed(newer, disk)
    [whole] = at_one_time(now, newer.state)
    older = log_of(disk, ())
    from_checkpoints = [refold(older, load_checkpoint(data), after) for after, data in checkpoint.load(disk)]
    assert from_checkpoints
    assert set(at_one_time(now, refold(older, State()), *from_checkpoints)) == {whole}


def test_after_it_is_finalized_the_older_version_refuses_and_the_newer_goes_on() -> None:
    disk = made_by(OLDER)
    engine = opened(disk, NEWER)
    engine.turn_on_features()
    run.put_router(engine, "r", source="q", dest="copies")
    work(engine)
    closed(engine, disk)
    assert isinstance(disk, SimDisk)
    before = {name: disk.content(name) for name in disk.names()}
    with pytest.raises(Corrupt, match=r"gadgets.*9\.2\.0"):
        opened(disk, OLDER)
    assert {name: disk.content(name) for name in disk.names()} == before
    engine = opened(disk, NEWER)
    assert sorted(engine.state.routers) == ["r"]
    assert engine.state.features == {"widgets", "gadgets"}


def test_features_survive_trimming_and_a_restart_from_a_checkpoint() -> None:
    disk = made_by(OLDER)
    engine = opened(disk, NEWER)
    engine.turn_on_features()
    first = engine.log.segments()[-1].number
    while engine.log.segments()[0].number <= first:
        work(engine)
    closed(engine, disk)
    again = log_of(disk, NEWER)
    position, payload = next(iter(checkpoint.load(disk)))
    assert again.contains(position)
    engine = Engine(again, clock=ManualClock(), settings=TINY)
    engine.recover([(position, payload)])
    assert engine.state.features == {"widgets", "gadgets"}
    engine.log.close()
    with pytest.raises(Corrupt, match="gadgets"):
        opened(disk, OLDER)


def test_a_checkpoint_in_the_making_meets_a_feature_that_is_turned_on_meanwhile() -> None:
    disk = made_by(OLDER)
    engine = opened(disk, NEWER)
    making, refused = CheckpointFold(disk, known=NEWER), CheckpointFold(disk, known=OLDER)
    making.open()
    refused.open()
    engine.turn_on_features()
    engine.sync()
    assert making.write(engine.log.position()).size > 0
    with pytest.raises(Corrupt, match="gadgets"):
        refused.write(engine.log.position())
    with pytest.raises(Corrupt, match="gadgets"):
        CheckpointFold(disk, known=OLDER).open()


# The broker


async def test_a_broker_shows_its_features_and_turns_them_on_once() -> None:
    disk = made_by(OLDER)
    async with await Broker.open(log_of(disk, NEWER), settings=TINY) as broker:
        status = broker.upgrade_status()
        assert (status.on, status.off) == ([FeatureInfo("widgets", "9.1.0")], [FeatureInfo("gadgets", "9.2.0")])
        with pytest.raises(Conflict, match="gadgets"):
            await broker.put_router("r", source="q", dest="copies")
        for _ in range(2):
            status = await broker.finalize_upgrade()
            assert ([feature.name for feature in status.on], status.off) == (["widgets", "gadgets"], [])
        await broker.put_router("r", source="q", dest="copies")
    with pytest.raises(Closed):
        await broker.finalize_upgrade()
    async with await Broker.open(log_of(disk, NEWER), settings=TINY) as broker:
        assert broker.upgrade_status().off == []


async def test_a_broker_in_memory_has_nothing_to_finalize() -> None:
    async with await Broker.open() as broker:
        assert broker.upgrade_status().off == []
        assert (await broker.finalize_upgrade()).off == []


class GatedDisk(SimDisk):
    """A disk whose syncs last until the gate is opened."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, file: File) -> None:
        assert self.gate.wait(30), "a test left the gate shut"
        super().sync(file)


async def test_a_finalized_upgrade_is_durable_before_it_is_answered() -> None:
    disk = GatedDisk(1)
    made_by(OLDER, disk)
    async with await Broker.open(log_of(disk, NEWER), settings=TINY) as broker:
        await broker.synced()
        disk.gate.clear()
        first, second = await start(broker.finalize_upgrade()), await start(broker.finalize_upgrade())
        await turn()
        assert (first.done(), second.done()) == (False, False)
        assert "gadgets" not in log_of(disk.crash("lost"), NEWER).features
        disk.gate.set()
        await first
        assert "gadgets" in log_of(disk.crash("lost"), NEWER).features
        assert (await second).off == []


async def test_a_disk_that_fails_under_a_finalized_upgrade_leaves_its_outcome_open() -> None:
    disk = made_by(OLDER)
    assert isinstance(disk, SimDisk)
    broker = await Broker.open(log_of(disk, NEWER), settings=TINY)
    await broker.synced()
    sync = disk.sync

    def failing(file: File) -> None:
        raise OSError(5, "Input/output error")

    disk.sync = failing  # type: ignore[method-assign]
    with pytest.raises(Indeterminate):
        await broker.finalize_upgrade()
    with pytest.raises(Closed):
        await broker.finalize_upgrade()
    disk.sync = sync  # type: ignore[method-assign]
    await broker.close()


async def test_an_upgrade_finalizes_itself_after_the_time_that_was_set(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tenure.broker")
    disk = made_by(OLDER)
    soon = Settings(segment_bytes=2048, upgrade_finalize_after_ms=1)
    async with await Broker.open(log_of(disk, NEWER), settings=soon) as broker:
        assert [feature.name for feature in broker.upgrade_status().off] == ["gadgets"]
        async with asyncio.timeout(60):
            while broker.upgrade_status().off:
                await asyncio.sleep(0.001)
    said = [record.getMessage() for record in caplog.records]
    assert any("off until tenure upgrade finalize: gadgets" in line for line in said)
    assert any("these features are on: gadgets" in line for line in said)
    assert "gadgets" in log_of(disk, NEWER).features


async def test_without_such_a_time_features_stay_off_and_a_closed_broker_turns_none_on() -> None:
    disk = made_by(OLDER)
    late = Settings(segment_bytes=2048, upgrade_finalize_after_ms=3_600_000)
    for settings in (TINY, late):
        broker = await Broker.open(log_of(disk, NEWER), settings=settings)
        timer = broker._upgrade._timer
        assert (timer is None) == (settings is TINY)
        await broker.close()
        assert timer is None or timer.cancelled()
    opened(disk, OLDER).log.close()


# A directory that no process has open


def test_a_closed_directory_is_finalized_and_a_held_one_is_refused(tmp_path: Path) -> None:
    held = PosixDisk(tmp_path)
    made_by(OLDER, held)
    held.lock()
    with pytest.raises(Conflict) as refused:
        finalize_closed(PosixDisk(tmp_path), known=NEWER)
    assert refused.value.code == "locked"
    held.unlock()
    for _ in range(2):
        assert finalize_closed(PosixDisk(tmp_path), known=NEWER).off == []
    engine = opened(PosixDisk(tmp_path), NEWER)
    assert engine.state.topics["q"].count
    engine.log.close()
    with pytest.raises(Corrupt, match="gadgets"):
        finalize_closed(PosixDisk(tmp_path), known=OLDER)
