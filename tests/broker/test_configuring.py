"""Changing topics that are there: patches, logs that become queues, and names that only a put brings back."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Broker, Settings
from tenure.broker.durability.trim import trim_step
from tenure.broker.engine import Engine
from tenure.broker.salvage.rebuild import rebuild
from tenure.core.state.invariants import invariants
from tenure.core.state.snapshot import dump_checkpoint
from tenure.log.log import FileLog
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.kit import run
from tests.kit.brokers import datas, make_queue, reopen, start, turn

# Patch


async def test_a_patch_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, lease_ms=5_000)
    await broker.patch_topic("q", {"max_deliveries": 2})
    async with await reopen(broker, log, clock) as again:
        config = again.topic("q").config
        assert (config.type, config.lease_ms, config.max_deliveries) == ("queue", 5_000, 2)


# A log that nobody asked for


@pytest.mark.parametrize("way", ["log", "checkpoint", "trimmed", "salvaged"])
@pytest.mark.parametrize("before", [True, False], ids=["still a log", "a queue by now"])
def test_what_a_topic_is_survives(way: str, before: bool) -> None:
    """What an append made may still become a queue after a restart, and what became one still is one."""
    disk, clock, settings = SimDisk(1), ManualClock(), Settings(segment_bytes=2048, spare_segments=1)
    engine = opened(disk, clock, settings)
    run.produce(engine, "q", [b"1", b"2"])
    if not before:
        run.put_topic(engine, "q", {"type": "queue", "lease_ms": 700})
    if way == "trimmed":
        first = engine.log.segments()[0].number
        while engine.log.segments()[0].number == first:
            run.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
            engine.sync()
            if len(engine.log.segments()) > 1:
                trim_step(engine)
    engine.sync()
    payload = engine.checkpoint()
    position = engine.log.position()
    engine.log.close()
    if way == "salvaged":
        target = SimDisk(2)
        rebuild(disk, target, clock=clock, settings=settings)
        disk = target
    again = opened(disk, clock, settings, [(position, payload)] if way == "checkpoint" else [])
    if before:
        run.put_topic(again, "q", {"type": "queue", "lease_ms": 700})
    invariants(again.state)
    topic, queue = again.state.queue("q")
    assert (topic.count, queue.cursor, topic.config.lease_ms) == (2, 1, 700)


def opened(disk: SimDisk, clock: ManualClock, settings: Settings, checkpoints: Any = ()) -> Engine:
    engine = Engine(FileLog.open(disk, segment_bytes=settings.segment_bytes), clock=clock, settings=settings)
    engine.recover(checkpoints)
    return engine


# auto_create


def test_a_retired_name_survives_restarts_and_the_loss_of_its_segment() -> None:
    disk, clock, settings = SimDisk(1), ManualClock(), Settings(segment_bytes=2048, spare_segments=1)
    engine = opened(disk, clock, settings)
    run.put_topic(engine, "t", {"auto_create": False})
    run.delete_topic(engine, "t")
    first = engine.log.segments()[0].number
    while engine.log.segments()[0].number == first:
        run.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
        engine.sync()
        if len(engine.log.segments()) > 1:
            trim_step(engine)
    engine.sync()
    engine.log.close()
    again = opened(disk, clock, settings)
    assert again.state.retired == {"t"}
    assert dump_checkpoint(again.state)
    again.log.close()
    target = SimDisk(2)
    rebuild(disk, target, clock=clock, settings=settings)
    assert opened(target, clock, settings).state.retired == {"t"}


# Dead now


async def test_those_who_read_a_log_go_on_when_it_becomes_a_queue(broker: Broker) -> None:
    await broker.produce("q", [b"1"])
    reading = await start(broker.diff("q", from_seq=1, wait_ms=1000))
    await broker.put_topic("q", {"type": "queue"})
    await broker.produce("q", [b"2"])
    await turn()
    assert datas(reading.result().records) == [b"2"]
