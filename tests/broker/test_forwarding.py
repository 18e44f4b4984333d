"""Copies beside the appends of others: how many wait for a sync, who copies next, and how long a turn is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tenure import Broker, Settings
from tenure.contract.share import Unsynced
from tenure.core.events import Appended, Event
from tenure.errors import NotLeader
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, datas, make_queue, read, turn

PENDING = 1_000
STEP = 100
SETTINGS = Settings(router_pending_bytes_max=PENDING, router_step_bytes=STEP, pending_bytes_max=20_000)
RECORD = b"x" * 80
COPY_BYTES = 100
"""More than a copy of a record takes."""


async def fan_out(broker: Broker, source: str, count: int) -> None:
    for number in range(count):
        await broker.put_router(f"{source}.{number:02}", source=source, dest=f"{source}.to.{number:02}")


async def all_copied(broker: Broker) -> None:
    """Wait until nothing is left to copy; how long it takes decides nothing."""
    async with asyncio.timeout(60):
        while broker._serving.forwarding.lines:
            await asyncio.sleep(0)


@contextmanager
def behind(log: GatedLog) -> Iterator[None]:
    """A disk that syncs nothing meanwhile."""
    log.gate.clear()
    try:
        yield
    finally:
        log.gate.set()


def copied_to(broker: Broker) -> list[str]:
    """The topics that are appended to from now on, in that order."""
    topics: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Appended):
            topics.append(broker._state.by_id[event.topic].name)

    broker._engine.listeners.append(note)
    return topics


async def test_copies_that_wait_for_a_sync_are_bounded_and_others_append_meanwhile(clock: ManualClock) -> None:
    """One append becomes 50 copies of 800 bytes, and the disk is behind: all but a few wait where they cost nothing."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        await make_queue(broker, "good")
        await fan_out(broker, "a", 50)
        await broker.synced()
        with behind(log):
            await broker.produce("a", [RECORD] * 10)
            await turn()
            assert PENDING <= broker._state.unsynced_bytes - 10 * len(RECORD) < PENDING + COPY_BYTES
            for _ in range(20):
                await broker.produce("good", [RECORD])
                await turn()
            assert broker._state.unsynced_bytes < PENDING + 31 * COPY_BYTES, (
                "neither do appends let more of them through"
            )
        await broker.synced()
        await all_copied(broker)
        for number in range(50):
            assert len(await read(broker, f"a.to.{number:02}")) == 10


async def test_copies_go_on_with_each_sync_and_none_holds_more_of_them(clock: ManualClock) -> None:
    """No timer has to pass between two of them: forwarding asks for the sync that it waits for."""
    settings = msgspec.structs.replace(SETTINGS, sync_interval_ms=3_600_000)
    async with await Broker.open(None, clock=clock, settings=settings) as broker:
        await fan_out(broker, "a", 50)
        unsynced, engine = list[int](), broker._engine
        broker._engine.listeners.append(lambda _: unsynced.append(engine.state.unsynced_bytes))
        await broker.produce("a", [RECORD] * 10)
        await all_copied(broker)
        assert all(broker.router(f"a.{number:02}").forwarded == 10 for number in range(50))
        assert max(unsynced) < 10 * len(RECORD) + PENDING + COPY_BYTES


async def test_owners_copy_in_turn_whatever_one_of_them_has_to_copy(clock: ManualClock) -> None:
    """Routers whose owner is not known stand in the line of their source."""
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        await fan_out(broker, "a", 30)
        await fan_out(broker, "b", 1)
        await broker.synced()
        with behind(log):
            await broker.produce("a", [RECORD] * 10)
            await turn()
            topics = copied_to(broker)
            await broker.produce("b", [RECORD] * 3)
        await all_copied(broker)
        mine = [at for at, topic in enumerate(topics) if topic == "b.to.00"]
        assert len(mine) == 3
        assert mine[-1] <= 2 * len(mine) + 1, "one of two steps was b's, until it had copied all"


async def test_routers_of_one_owner_stand_in_one_line_whatever_their_sources(clock: ManualClock) -> None:
    log, tenant = GatedLog(), Unsynced(1_000_000)
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        broker.charge_copies(lambda router: tenant if router.name.startswith("t") else None)
        for source in ("t1", "t2", "t3", "b"):
            await fan_out(broker, source, 10 if source != "b" else 1)
        await broker.synced()
        with behind(log):
            for source in ("t1", "t2", "t3"):
                await broker.produce(source, [RECORD] * 5)
            await turn()
            topics = copied_to(broker)
            await broker.produce("b", [RECORD] * 3)
        await all_copied(broker)
        mine = [at for at, topic in enumerate(topics) if topic == "b.to.00"]
        assert mine[-1] <= 2 * len(mine) + 1
        await broker.synced()
        assert tenant.held(broker._state.synced_bytes) == 0


async def test_an_owner_whose_bytes_make_up_its_share_waits_for_a_sync_and_others_copy(clock: ManualClock) -> None:
    log, tenant = GatedLog(), Unsynced(500)
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        broker.charge_copies(lambda router: tenant if router.name.startswith("t") else None)
        await fan_out(broker, "t", 20)
        await fan_out(broker, "b", 1)
        await broker.synced()
        with behind(log):
            await broker.produce("t", [RECORD] * 2)
            await turn()
            assert 500 <= tenant.held(broker._state.synced_bytes) < 500 + COPY_BYTES
            await broker.produce("b", [RECORD])
            await turn()
            assert broker.router("b.00").forwarded == 1
            assert tenant.held(broker._state.synced_bytes) < 500 + COPY_BYTES
        await all_copied(broker)
        assert all(broker.router(f"t.{number:02}").forwarded == 2 for number in range(20))


async def test_a_turn_of_the_loop_takes_one_step_where_it_has_no_time_for_more(clock: ManualClock) -> None:
    settings = Settings(turn_ms_max=0, router_step_records=1)
    async with await Broker.open(None, clock=clock, settings=settings) as broker:
        await fan_out(broker, "a", 30)
        await broker.synced()
        broker.produce("a", [RECORD])
        topics, most = copied_to(broker), 0
        assert broker._state.topics.keys() >= {"a.to.00"}, "the first one follows at once"
        while broker._serving.forwarding.lines:
            before = len(topics)
            await asyncio.sleep(0)
            most = max(most, len(topics) - before)
        assert (len(topics), most) == (29, 1)


async def test_a_router_that_is_deleted_while_it_waits_copies_nothing_more(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        await fan_out(broker, "a", 20)
        await broker.synced()
        with behind(log):
            await broker.produce("a", [RECORD] * 10)
            await turn()
            late = [f"a.{number:02}" for number in range(20) if not broker.router(f"a.{number:02}").forwarded]
            gone = [broker.delete_router(name) for name in late]
            assert gone
            broker.put_router(late[0], source="a", dest="new")
        await broker.synced()
        await all_copied(broker)
        assert not {f"a.to.{name[2:]}" for name in late} & broker._state.topics.keys()
        assert "new" not in broker._state.topics, "a router copies what comes after it was made"


async def test_a_router_whose_source_was_deleted_while_it_waits_copies_nothing_more(clock: ManualClock) -> None:
    log = GatedLog()
    async with await Broker.open(log, clock=clock, settings=SETTINGS) as broker:
        await fan_out(broker, "a", 20)
        await broker.synced()
        with behind(log):
            await broker.produce("a", [RECORD] * 10)
            await turn()
            deleting = asyncio.ensure_future(_delete(broker, "a"))
            await turn()
        await deleting
        await broker.synced()
        await turn()
        assert not broker._serving.forwarding.lines
        assert broker.routers().items == []


async def _delete(broker: Broker, topic: str) -> None:
    await broker.delete_topic(topic)


async def test_a_broker_that_gave_up_copies_nothing_more_and_closes(clock: ManualClock) -> None:
    log = GatedLog()
    broker = await Broker.open(log, clock=clock, settings=SETTINGS)
    await fan_out(broker, "a", 20)
    await broker.synced()
    log.gate.clear()
    await broker.produce("a", [RECORD] * 10)
    await turn()
    topics = copied_to(broker)
    broker.give_up(NotLeader("another one leads", leader="", epoch=2))
    log.gate.set()
    async with asyncio.timeout(60):
        while broker._serving.committer._syncing is not None:
            await asyncio.sleep(0)
    await turn()
    await broker.close()
    assert topics == []


async def test_what_waited_is_copied_after_the_broker_was_closed_and_opened(clock: ManualClock) -> None:
    log = GatedLog()
    broker = await Broker.open(log, clock=clock, settings=SETTINGS)
    await fan_out(broker, "a", 20)
    await broker.synced()
    log.gate.clear()
    await broker.produce("a", [b"1"] * 300)
    await turn()
    log.gate.set()
    await broker.close()
    async with await Broker.open(log.reopen(), clock=clock, settings=SETTINGS) as broker:
        await all_copied(broker)
        for number in range(20):
            assert datas(await read(broker, f"a.to.{number:02}")) == [b"1"] * 300
