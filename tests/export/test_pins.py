"""The log is kept for its reader up to a limit, and notes the time even where nothing else happens."""

from __future__ import annotations

from pathlib import Path

from tenure import Broker, Settings
from tenure.export.follower import Follower
from tenure.log.disk import PosixDisk
from tenure.testing.clock import ManualClock
from tests.kit.broker_life import polled

SMALL = Settings(segment_bytes=1 << 14, spare_segments=1, trim_step_bytes=1 << 12)


async def churn(broker: Broker, *, rounds: int) -> None:
    """Jobs come and go, so the log grows and nothing in it stays alive."""
    for _ in range(rounds):
        await broker.produce("q", [b'"%s"' % (b"x" * 400)] * 5)
        claim = await broker.claim("q", node="w", max_count=5)
        await broker.ack("q", node="w", seqs=claim.seqs)
        await broker.synced()


def oldest(home: Path) -> int:
    return min(int(path.stem) for path in (home / "segments").glob("*.log"))


async def test_a_pinned_log_is_not_trimmed_and_goes_once_the_pin_moves(tmp_path: Path) -> None:
    async with await Broker.open(tmp_path, settings=SMALL) as broker:
        await broker.put_topic("q", {"type": "queue"})
        broker.pin(0, bytes_max=1 << 30)
        await churn(broker, rounds=60)
        assert oldest(tmp_path) == 1
        broker.pin(broker._engine.log.segments()[3].first_batch, bytes_max=1 << 30)
        await churn(broker, rounds=20)
        assert oldest(tmp_path) == 4
        broker.pin(None)
        await churn(broker, rounds=40)
        assert oldest(tmp_path) > 6


async def test_a_pin_that_costs_too_much_gives_way(tmp_path: Path) -> None:
    async with await Broker.open(tmp_path, settings=SMALL) as broker:
        await broker.put_topic("q", {"type": "queue"})
        broker.pin(0, bytes_max=1 << 15)
        await churn(broker, rounds=60)
        kept = sum(segment.used_bytes for segment in broker._engine.log.segments())
        assert oldest(tmp_path) > 1
        assert 1 << 15 < kept <= (1 << 15) + 3 * (1 << 14)


async def test_a_lease_that_runs_out_on_a_silent_broker_is_exported_once_time_is_marked(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await Broker.open(tmp_path, clock=clock) as broker:
        for name in ("p", "q"):
            await broker.put_topic(name, {"type": "queue", "lease_ms": 100})
            await broker.produce(name, [b"1"])
            await broker.claim(name, node="w")
        follower = Follower(PosixDisk(tmp_path))
        broker.mark_time()
        clock.advance(101)  # within the same second of log time
        broker.topic("p")  # with or without a caller that looks
        for _ in range(3):
            broker.mark_time()
            await broker.synced()
        batch = broker._engine.log.pending_batch
    rows = polled(follower)
    assert [(row.event, row.topic) for row in rows[-2:]] == [("expired", "p"), ("expired", "q")]
    assert rows[-1].batch < batch, "and marked once"
