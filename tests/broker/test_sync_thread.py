"""Syncs run on a thread of their own, so that a disk that stalls keeps nobody's heartbeat from being heard."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tenure import Broker, Settings
from tenure.broker.durability.sync_thread import SyncThread
from tenure.testing import SimDisk
from tenure.testing.clock import ManualClock
from tests.kit.brokers import make_queue, start, turn


class NotingDisk(SimDisk):
    """Notes which thread each sync of a file ran on."""

    def __init__(self, *, is_memory: bool = False) -> None:
        super().__init__(1)
        self.is_memory = is_memory
        self.on_loop: list[bool] = []

    def sync(self, file: int) -> None:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        super().sync(file)


async def places(disk: NotingDisk, broker: Broker, size: int) -> list[bool]:
    """Where the syncs of one produce ran."""
    disk.on_loop.clear()
    await broker.produce("q", [b"x" * size])
    return list(disk.on_loop)


async def test_no_sync_of_a_device_runs_on_the_loop_however_fast_it_was_so_far():
    disk = NotingDisk()
    async with await Broker.open(disk) as broker:
        await make_queue(broker, durability="fsync")
        assert [await places(disk, broker, 100) for _ in range(100)] == [[False]] * 100


async def test_a_sync_of_memory_runs_on_the_loop_and_one_that_rolls_on_the_thread():
    disk = NotingDisk(is_memory=True)
    async with await Broker.open(disk, settings=Settings(segment_bytes=1 << 20)) as broker:
        await make_queue(broker, durability="fsync")
        assert await places(disk, broker, 100) == [True]
        assert await places(disk, broker, 900_000) == [True]
        assert True not in await places(disk, broker, 900_000)
        assert await places(disk, broker, 100) == [True]


# A disk that stalls


class StallingDisk(NotingDisk):
    """Each sync lasts until the gate is opened, on whichever thread it runs; on the loop nothing could open it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, file: int) -> None:
        super().sync(file)
        if not self.gate.wait(0 if self.on_loop[-1] else 30):
            raise OSError("the loop stands still")


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_lease_that_is_extended_in_time_is_kept_however_long_a_sync_lasts(leases_durable: bool):
    """Every heartbeat goes through a socket; where leases are durable its answer waits for the disk, and is yes."""
    disk, clock = StallingDisk(), ManualClock()
    async with await Broker.open(disk, clock=clock) as broker:
        await make_queue(broker, jobs=1, lease_ms=1_500, leases_durable=leases_durable)
        await broker.put_topic("f", {"durability": "fsync"})
        for _ in range(40):
            await broker.produce("f", [b"x"])
        await broker.claim("q", node="w")
        disk.gate.clear()
        written = await start(broker.produce("f", [b"x"]))
        answers = []

        async def extend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1):
                answers.append(await start(broker.extend("q", node="w", seqs=[1], lease_ms=1_500)))
                writer.write(b".")
            writer.close()

        server = await asyncio.start_server(extend, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(10):
            clock.advance(1_000)
            writer.write(b"x")
            assert await reader.read(1) == b"."
            assert not written.done()
            assert len(broker.leases("q").items) == 1
        disk.gate.set()
        assert [len((await answer).deadlines) for answer in answers] == [1] * 10
        await written
        assert broker.topic("q").queue.in_flight == 1  # type: ignore[union-attr]
        assert (await broker.ack("q", node="w", seqs=[1])).count == 1
        writer.close()
        server.close()


# The thread


async def test_work_is_done_in_turn_and_its_error_is_raised_where_it_is_awaited():
    loop, done = asyncio.get_running_loop(), list[int]()
    thread = SyncThread(loop)
    working = [loop.run_in_executor(thread, done.append, number) for number in range(100)]
    failing = loop.run_in_executor(thread, int, "x")
    await asyncio.gather(*working)
    assert done == list(range(100))
    with pytest.raises(ValueError, match="invalid literal"):
        await failing
    thread.shutdown()
    assert threads() == []


async def test_the_thread_ends_with_its_last_work_when_nobody_has_it_any_more():
    thread = SyncThread(asyncio.get_running_loop())
    await asyncio.get_running_loop().run_in_executor(thread, int)
    [running] = threads()
    del thread
    gc.collect()
    running.join(30)
    assert threads() == []


async def test_a_caller_that_went_away_is_not_told_how_it_ended():
    loop, gate = asyncio.get_running_loop(), threading.Event()
    thread = SyncThread(loop)
    abandoned = loop.run_in_executor(thread, gate.wait, 30)
    abandoned.cancel()
    gate.set()
    assert await loop.run_in_executor(thread, int) == 0
    await turn()
    assert abandoned.cancelled()
    thread.shutdown()


def test_work_that_outlives_its_loop_ends_quietly():
    gate = threading.Event()
    loop = asyncio.new_event_loop()
    thread = SyncThread(loop)
    thread.submit(gate.wait, 30)
    loop.close()
    gate.set()
    thread.shutdown()
    assert threads() == []


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tenure-sync"]
