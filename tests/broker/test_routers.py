"""Routers: copies from a cursor of the log, past filters, loops, full and absent destinations."""

from __future__ import annotations

import pytest

from tenure import Broker, Settings
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.kit.brokers import GatedLog, datas, make_queue, read, reopen, start, tagged, turn

# Copying


async def test_a_copy_into_a_queue_is_a_job(broker: Broker) -> None:
    await make_queue(broker)
    await broker.put_router("r", source="a", dest="q")
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    await broker.produce("a", [b"1"])
    assert datas((await claiming).jobs) == [b"1"]


async def test_a_long_backlog_is_copied_in_steps_and_in_order(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(router_step_records=3)) as broker:
        await broker.put_router("r", source="a", dest="b")
        await broker.produce("a", [b"%d" % number for number in range(20)])
        await turn()
        assert datas(await read(broker, "b")) == [b"%d" % number for number in range(20)]


# Cycles


async def test_an_allowed_cycle_ends_at_the_hop_cap(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(router_hops_max=5)) as broker:
        await broker.put_router("1", source="a", dest="b")
        await broker.put_router("2", source="b", dest="a", allow_cycle=True)
        await broker.produce("a", [b"1"])
        await turn()
        assert (len(await read(broker, "a")), len(await read(broker, "b"))) == (3, 3), "5 hops make 5 copies"
        await broker.produce("b", [b"2"])
        await turn()
        assert datas(await read(broker, "b")).count(b"2") == 3


# Destinations


async def test_a_full_destination_holds_the_router_until_there_is_room(broker: Broker) -> None:
    await make_queue(broker, cap_records=1, discard="reject")
    await broker.put_router("r", source="a", dest="q")
    await broker.produce("a", [b"1"])
    await broker.produce("a", [b"2"])
    await broker.produce("a", [b"3"])
    assert (datas(await read(broker, "q")), broker.router("r").cursor) == ([b"1"], 1)
    await broker.put_topic("q", {"cap_records": 2, "discard": "reject"})
    await broker.claim("q", node="w", auto_ack=True)
    await turn()
    assert datas(await read(broker, "q")) == [b"2", b"3"]
    assert broker.router("r").forwarded == 3


# Loss


async def test_a_topic_that_was_deleted_before_its_turn_came_is_not_copied_from(broker: Broker) -> None:
    await broker.produce("a", [b"old"])
    broker._serving.attend_later(broker._state.topics["a"])
    broker.delete_topic("a")
    broker.put_router("r", source="a", dest="b")
    await turn()
    assert broker.topics().items == []


# Durability


@pytest.mark.parametrize("durability", ["disk", "fsync"])
async def test_a_reader_of_the_destination_comes_past_the_gap(
    broker: Broker, clock: ManualClock, durability: str
) -> None:
    """The seq that marks it becomes durable: a reader is woken by it, told once, and goes on behind it."""
    await broker.put_topic("a", {"ttl_ms": 1_000})
    await broker.put_topic("b", {"durability": durability, "cap_records": 1, "discard": "reject"})
    await broker.produce("b", [b"fills it"])
    await broker.put_router("r", source="a", dest="b")
    await broker.produce("a", [b"1", b"2", b"3"])
    clock.advance(5_000)
    await broker.diff("a")
    waiting = await start(broker.diff("b", from_seq=1, wait_ms=1_000))
    await broker.delete_records("b", before_seq=2)
    await broker.synced()
    found = await waiting
    assert found.tombstone is not None
    assert (found.next_from_seq, broker.topic("b").durable_seq) == (2, 2)
    assert (await broker.diff("b", from_seq=2)).tombstone is None


async def test_records_of_an_fsync_source_are_copied_once_synced(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock) as broker:
        await broker.put_topic("a", {"durability": "fsync"})
        await broker.put_router("r", source="a", dest="b")
        log.gate.clear()
        producing = await start(broker.produce("a", [b"1"]))
        assert broker.topics().items == ["a"], "nobody acts on a record that can vanish"
        log.gate.set()
        await producing
        assert datas(await read(broker, "b")) == [b"1"]


async def test_the_cursor_survives_a_restart_and_nothing_is_copied_twice(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await broker.put_router("r", source="a", dest="b", filter=["tag", "Glob", "x*"])
    await broker.produce("a", tagged("x1", "y", "x2"))
    async with await reopen(broker, log, clock) as broker:
        await broker.produce("a", tagged("x3"))
        assert datas(await read(broker, "b")) == [b"x1", b"x2", b"x3"]
        assert broker.router("r").forwarded == 3


async def test_a_router_that_was_behind_catches_up_when_the_broker_opens(clock: ManualClock) -> None:
    disk = SimDisk()
    async with await Broker.open(disk, clock=clock) as broker:
        await broker.put_topic("a", {"durability": "fsync"})
        await broker.put_router("r", source="a", dest="b")
        broker.produce("a", [b"1"])
        broker._engine.write()
        killed = disk.kill()  # written, but not seen to be synced: the router has not been there
    async with await Broker.open(killed, clock=clock) as broker:
        await turn()
        assert datas(await read(broker, "b")) == [b"1"]
