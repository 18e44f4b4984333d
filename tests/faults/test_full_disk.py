"""Fault 12: on a full disk every job can be claimed and acked one by one, until space returns by itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count, cycle
from random import Random

import pytest

from tenure import Broker, Settings
from tenure.broker.durability.trim import trim_due, trim_step
from tenure.broker.engine import Engine
from tenure.errors import Overloaded, TenureError
from tenure.log import FileLog
from tenure.testing import ManualClock, SimDisk
from tests.kit import run

SEGMENT_BYTES = 1 << 16
SETTINGS = Settings(segment_bytes=SEGMENT_BYTES, spare_segments=2, sync_interval_ms=1, trim_step_bytes=4096)
SEGMENTS = 10
QUEUE = {"type": "queue", "lease_ms": 86_400_000}

Shape = list[tuple[str, int, int]]
"""What is produced in turn: the queue, the size of a job, and how many jobs in one append."""

SHAPES: dict[str, Shape] = {
    "one by one": [("busy", 256, 1)],
    "large jobs": [("busy", 5_000, 1)],
    "batches": [("busy", 100, 50)],
    "beside jobs that stay": [("busy", 300, 4), ("kept", 300, 1)],
}


async def fill(broker: Broker, shape: Shape) -> int:
    """Produce until the disk is full; return the number of jobs in ``busy``."""
    jobs = 0
    for topic, size, records in cycle(shape):
        try:
            await broker.produce(topic, [b"p" * size] * records)
        except Overloaded:
            break
        jobs += records if topic == "busy" else 0
    return jobs


async def quiet(broker: Broker) -> None:
    """Let upkeep come to an end."""
    while broker._upkeep._tasks:
        await asyncio.sleep(0)


async def settled(broker: Broker, jobs: int, random: Random | None) -> None:
    """Claim every job by itself and ack each one, in order or, with ``random``, in any."""
    held: list[int] = []
    for _ in range(jobs):
        claim = await broker.claim("busy", node="w")
        held += claim.seqs
        if random is None:
            assert (await broker.ack("busy", node="w", seqs=[held.pop()])).count == 1
    if random is not None:
        random.shuffle(held)
        for seq in held:
            assert (await broker.ack("busy", node="w", seqs=[seq])).count == 1


@pytest.mark.parametrize("order", ["in order", "in any order"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_job_can_be_claimed_and_acked_one_by_one_on_a_full_disk(shape: str, order: str) -> None:
    disk = SimDisk(1, capacity_bytes=SEGMENTS * SEGMENT_BYTES)
    broker = await Broker.open(disk, settings=SETTINGS)
    await broker.put_topic("busy", QUEUE)
    await broker.put_topic("kept", QUEUE)
    jobs = await fill(broker, SHAPES[shape])
    kept = broker.topic("kept").count
    await settled(broker, jobs, None if order == "in order" else Random(7))
    assert broker.topic("busy").count == 0
    await broker.synced()
    await quiet(broker)
    assert (await broker.produce("busy", [b"room again"])).count == 1
    await broker.close()
    async with await Broker.open(disk.crash("lost"), settings=SETTINGS) as again:
        assert (again.topic("busy").count, again.topic("kept").count) == (1, kept)


async def test_trimming_never_uses_up_the_room_that_acks_need() -> None:
    """What stays is carried into room of its own: with a fifth of the bytes alive, every ack still finds some."""
    disk = SimDisk(2, capacity_bytes=SEGMENTS * SEGMENT_BYTES)
    broker = await Broker.open(disk, settings=SETTINGS)
    await broker.put_topic("busy", QUEUE)
    await broker.put_topic("kept", QUEUE)
    for _ in range(4):
        jobs = await fill(broker, SHAPES["beside jobs that stay"])
        if not jobs:
            break
        await settled(broker, jobs, None)
        await broker.synced()
        await quiet(broker)
    assert broker._engine.rewritten_bytes > SEGMENT_BYTES, "trimming carried what stays"
    await broker.close()


async def test_heartbeats_that_use_up_the_room_for_acks_get_it_back_from_trimming() -> None:
    """Nothing is dead but the extends themselves: the whole log is turned over, in the room that is kept for that."""
    disk = SimDisk(5, capacity_bytes=SEGMENTS * SEGMENT_BYTES)
    broker = await Broker.open(disk, settings=SETTINGS)
    await broker.put_topic("busy", QUEUE)
    await fill(broker, SHAPES["large jobs"])
    claim = await broker.claim("busy", node="w", max_count=1000)
    broker._upkeep._trimming = True  # until all that acks may use is used up
    with suppress(Overloaded):
        while True:
            await broker.extend("busy", node="w", seqs=claim.seqs[:1], lease_ms=60_000)
    broker._upkeep._trimming = False
    broker._upkeep._after_sync()
    await quiet(broker)
    for seq in claim.seqs:
        assert (await broker.ack("busy", node="w", seqs=[seq])).count == 1
    await broker.close()


def beat_until_refused(engine: Engine, *, shape: Shape, sync_every: int) -> list[int]:
    """Fill the disk, claim every job, and extend one lease until the room for acks is used up; return the jobs.

    The log is synced after every so many commands, with 0 never: what room a full segment gives back depends on it.
    """
    steps = count(1)

    def done() -> None:
        engine.write()
        if sync_every and next(steps) % sync_every == 0:
            engine.sync()

    run.put_topic(engine, "busy", QUEUE)
    with suppress(Overloaded):
        for topic, size, records in cycle(shape):
            run.produce(engine, topic, [b"p" * size] * records)
            done()
    seqs: list[int] = []
    while (claim := run.claim(engine, "busy", node="w", max_count=10).reply).seqs:
        seqs += claim.seqs
        done()
    with suppress(Overloaded):
        while True:
            run.extend(engine, "busy", node="w", seqs=seqs[:1], lease_ms=60_000)
            done()
    return seqs


def trim(engine: Engine) -> None:
    """Trim as upkeep does: without room, it waits for a sync that frees some; no other refusal may be met."""
    while trim_due(engine):
        try:
            if trim_step(engine):
                engine.sync()
        except Overloaded:
            assert engine.log.sync_frees_room
            engine.sync()


@pytest.mark.parametrize("step_bytes", [1 << 12, 1 << 20])
@pytest.mark.parametrize("sync_every", [0, 1, 50])
@pytest.mark.parametrize(
    "shape",
    [
        [("busy", 256, 1)],
        [("busy", 5_000, 1)],
        [("busy", 20_000, 1)],
        [("busy", 9_000, 1), ("busy", 24_000, 1)],
        [("busy", 100, 50)],
        [("busy", 20, 100)],
    ],
    ids=lambda shape: "+".join(f"{records}x{size}" for _, size, records in shape),
)
def test_acks_leave_the_room_that_trimming_needs(shape: Shape, sync_every: int, step_bytes: int) -> None:
    """A rewrite is longer than what it frees: records get times of their own, and a base has a row for each lease."""
    disk = SimDisk(6, capacity_bytes=SEGMENTS * SEGMENT_BYTES)
    log = FileLog.open(disk, segment_bytes=SEGMENT_BYTES)
    settings = Settings(segment_bytes=SEGMENT_BYTES, spare_segments=2, trim_step_bytes=step_bytes)
    engine = Engine(log, clock=ManualClock(), settings=settings)
    engine.recover()
    seqs = beat_until_refused(engine, shape=shape, sync_every=sync_every)
    assert log.crowded
    trim(engine)
    Random(7).shuffle(seqs)
    for seq in seqs:
        assert run.ack(engine, "busy", node="w", seqs=[seq]).reply.count == 1
    log.close()


async def test_a_full_disk_that_is_opened_again_and_again_stays_open_to_acks() -> None:
    disk = SimDisk(3, capacity_bytes=5 * SEGMENT_BYTES)
    broker = await Broker.open(disk, settings=SETTINGS)
    await broker.put_topic("busy", QUEUE)
    jobs = await fill(broker, SHAPES["one by one"])
    for _ in range(60):
        disk = disk.kill()
        broker._serving.committer._thread.shutdown(wait=True)
        broker = await Broker.open(disk, settings=SETTINGS)
        claim = await broker.claim("busy", node="w")
        await broker.ack("busy", node="w", seqs=claim.seqs)
    assert broker.topic("busy").count == jobs - 60
    await broker.close()


async def test_a_disk_that_is_full_from_the_start_takes_nothing_and_says_why() -> None:
    disk = SimDisk(4, capacity_bytes=SEGMENT_BYTES // 2)
    with pytest.raises(TenureError) as refused:
        await Broker.open(disk, settings=SETTINGS)
    assert refused.value.code == "disk_full"
