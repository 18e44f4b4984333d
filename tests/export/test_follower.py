"""The follower gives the rows that the broker gave, from the log alone, and the same after any restart."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tenure import Broker
from tenure.contract.replies import Lifecycle
from tenure.core.state.snapshot import dump_checkpoint, load_checkpoint
from tenure.export.follower import Follower
from tenure.log.disk import PosixDisk
from tenure.testing.clock import ManualClock
from tests.kit.broker_life import QUEUES, SMALL, life, plain, polled, rows_of


async def test_a_whole_life_is_exported_step_by_step(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await Broker.open(tmp_path, clock=clock) as broker:
        await broker.put_topic("q", {"type": "queue", "lease_ms": 1_000})
        told = broker.events()
        await broker.produce("q", [b"1", b"2"])
        await broker.claim("q", node="w", max_count=2)
        await broker.extend("q", node="w", seqs=[1], lease_ms=2_000)
        await broker.nack("q", node="w", seqs=[1], reason="busy")
        await broker.ack("q", node="w", seqs=[2])
        await broker.claim("q", node="v")
        clock.advance(60_000)
        await broker.claim("q", node="u")
        rows = told.drain()
    found = polled(PosixDisk(tmp_path))
    expected = ["produced", "claimed", "extended", "released", "acked", "claimed", "expired", "claimed"]
    assert [row.event for row in found] == expected
    for row, live in zip(found, rows, strict=True):
        assert row == type(row)(
            **{name: getattr(live, name) for name in live.__struct_fields__}, batch=row.batch, n=row.n
        )


@pytest.mark.parametrize("seed", range(12))
async def test_the_log_gives_the_rows_that_the_broker_told(tmp_path: Path, seed: int) -> None:
    clock, random, told = ManualClock(), Random(seed), list[Lifecycle]()
    found = []
    follower = Follower(PosixDisk(tmp_path))
    for _ in range(3):
        async with await Broker.open(tmp_path, clock=clock, settings=SMALL) as broker:
            events = broker.events()
            for _ in range(6):
                await life(broker, clock, random, steps=25)
                told += events.drain()
                await broker.synced()
                found += polled(follower)
            clock.advance(100_000)  # every lease expires, and a claim notices it
            for name in QUEUES:
                broker.topic(name)
            await broker.produce("last", [b"1"])
            told += events.drain()
        found += polled(follower)
    assert plain(found) == plain(told)
    assert {row.event for row in found} >= {"produced", "claimed", "extended", "released", "expired", "acked"}
    assert len(set(rows_of(found))) == len(found)


@pytest.mark.parametrize("seed", range(8))
async def test_a_follower_that_starts_anywhere_gives_the_same_rows_under_the_same_names(
    tmp_path: Path, seed: int
) -> None:
    """Fault 43, for the fold of the export: from the oldest segment, or from a state kept at any position."""
    clock, random = ManualClock(), Random(seed)
    async with await Broker.open(tmp_path, clock=clock) as broker:
        await life(broker, clock, random, steps=150)
    whole = polled(PosixDisk(tmp_path))
    follower = Follower(PosixDisk(tmp_path))
    found = []
    for step in follower.poll():
        found += step.rows
        if random.random() < 0.1:
            kept = dump_checkpoint(follower.state)
            other = Follower(PosixDisk(tmp_path), state=load_checkpoint(kept), position=step.after.position)
            rest = polled(other)
            assert rest == whole[len(found) :]
    assert len(found) == len(whole) > 50


async def test_a_trimmed_log_is_told_as_a_gap_and_topics_come_back_with_their_base(tmp_path: Path) -> None:
    clock, random = ManualClock(), Random(1)
    follower = Follower(PosixDisk(tmp_path))
    async with await Broker.open(tmp_path, clock=clock, settings=SMALL) as broker:
        await life(broker, clock, random, steps=50)
        await broker.synced()
        await broker.produce("other", [b"1"])  # what was synced is seen once a later batch says so
        await broker.synced()
        before = polled(follower)
        while min(segment.number for segment in broker._engine.log.segments()) < 4:
            await life(broker, clock, random, steps=50)
            await broker.synced()
        await broker.produce("other", [b"1"])
        await broker.synced()
        behind = polled(follower)
        assert (behind[0].event, behind[0].reason) == ("gap", "trimmed")
        assert behind[0].first_batch is not None
        assert behind[0].last_batch is not None
        assert before[-1].batch < behind[0].first_batch <= behind[0].last_batch < behind[1].batch
        await life(broker, clock, random, steps=400)
        events = broker.events()
        behind += polled(follower)
        assert follower.unknown == {}, "every topic was carried since"
        unknown = [row for row in behind if row.reason == "unknown_topic"]
        assert {row.topic for row in unknown} <= {*QUEUES, "dead", "other"}
        for row in unknown:
            assert row.first_batch is not None
            told = [each for each in behind if each.topic == row.topic and each.event != "gap"]
            assert not [each for each in told if row.first_batch <= each.batch <= row.batch]
        events.drain()
        await life(broker, clock, random, steps=100)
        live = events.drain()
    rest = polled(follower)
    assert set(plain(live)) <= set(plain(rest)) | {each for each in plain(live) if each[0] == "expired"}
