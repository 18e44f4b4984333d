"""A small sync runs on the loop while the disk is fast, and on its thread otherwise."""

from __future__ import annotations

import threading

import pytest

from tenure import Broker, Settings
from tenure.broker.durability.committer import InlineSync
from tenure.testing import SimDisk
from tests.kit.brokers import make_queue

WINDOW = 16


def after(*took_us: float, short_us: int = 500) -> bool:
    inline = InlineSync(short_us)
    for us in took_us:
        inline.observe(us)
    return inline.is_due()


@pytest.mark.parametrize(
    ("took_us", "due"),
    [
        ([100] * (WINDOW - 1), False),
        ([100] * WINDOW, True),
        ([100] * (WINDOW - 4) + [9_000] * 4, True),
        ([100] * (WINDOW - 5) + [600] * 5, False),
        ([100] * (WINDOW - 1) + [10_001], False),
        ([10_001] + [100] * WINDOW, True),
    ],
)
def test_most_of_the_last_syncs_must_have_been_short_and_none_a_stall(took_us: list[float], due: bool):
    assert after(*took_us) is due


def test_with_a_limit_of_nothing_no_sync_runs_on_the_loop():
    assert not after(*[0.001] * 100, short_us=0)


class NotingDisk(SimDisk):
    """Notes which thread each sync of a file ran on."""

    def __init__(self) -> None:
        super().__init__(1)
        self.on_loop: list[bool] = []

    def sync(self, file: int) -> None:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        super().sync(file)


ALWAYS_US = 10**9


async def places(disk: NotingDisk, broker: Broker, size: int) -> list[bool]:
    """Where the syncs of one produce ran."""
    disk.on_loop.clear()
    await broker.produce("q", [b"x" * size])
    return list(disk.on_loop)


async def test_syncs_leave_the_thread_once_the_disk_was_seen_to_be_fast():
    disk = NotingDisk()
    async with await Broker.open(disk, settings=Settings(inline_sync_us=ALWAYS_US)) as broker:
        await make_queue(broker, durability="fsync")
        seen = [await places(disk, broker, 100) for _ in range(2 * WINDOW)]
        assert seen[0] == [False]
        assert seen[-1] == [True]


async def test_a_large_write_and_a_roll_are_synced_on_the_thread():
    disk = NotingDisk()
    settings = Settings(inline_sync_us=ALWAYS_US, segment_bytes=1 << 20)
    async with await Broker.open(disk, settings=settings) as broker:
        await make_queue(broker, durability="fsync")
        for _ in range(2 * WINDOW):
            await places(disk, broker, 100)
        assert await places(disk, broker, 400_000) == [False]
        assert await places(disk, broker, 100) == [True]
        assert not any([await places(disk, broker, 900_000), await places(disk, broker, 900_000)][1])


async def test_one_stall_sends_the_next_syncs_back_to_the_thread():
    disk = NotingDisk()
    async with await Broker.open(disk, settings=Settings(inline_sync_us=ALWAYS_US)) as broker:
        await make_queue(broker, durability="fsync")
        for _ in range(2 * WINDOW):
            await places(disk, broker, 100)
        broker._serving.committer._inline.observe(ALWAYS_US * 21)
        assert [await places(disk, broker, 100) for _ in range(WINDOW)] == [[False]] * WINDOW
        assert await places(disk, broker, 100) == [True]
