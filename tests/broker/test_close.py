"""The end of a broker: everybody who waits hears of it, everything is written, and nothing is taken afterwards."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure import Broker, Closed, Conflict, NotFound
from tenure.contract.commands import Claim, GetTopic
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tests.kit.brokers import GatedLog, datas, make_queue, numbers, read, start


async def test_those_who_wait_are_turned_away(broker: Broker) -> None:
    await make_queue(broker)
    waiting: list[asyncio.Future[Any]] = [
        await start(broker.claim("q", node="w", wait_ms=1000)),
        await start(broker.diff("q", wait_ms=1000)),
        await start(anext(broker.work("q", node="w"))),
    ]
    await broker.close()
    for waiter in waiting:
        with pytest.raises(Closed) as error:
            await waiter
        assert error.value.code == "shutting_down"


async def test_a_cohort_that_gathers_is_turned_away(broker: Broker) -> None:
    await make_queue(broker, jobs=5, claim_jitter_ms=1000)
    claiming = await start(broker.claim("q", node="w"))
    await broker.close()
    with pytest.raises(Closed):
        await claiming


async def test_a_cohort_whose_queue_is_deleted_does_not_wait_for_its_window(broker: Broker) -> None:
    await make_queue(broker, claim_jitter_ms=1000)
    claiming = await start(broker.claim("q", node="w", wait_ms=1000))
    await broker.delete_topic("q")
    with pytest.raises(NotFound):
        await asyncio.wait_for(claiming, 10)


async def test_a_second_close_is_harmless(broker: Broker) -> None:
    await broker.close()
    await broker.close()


async def test_two_closes_at_once_are_harmless(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    await asyncio.gather(broker.close(), broker.close())


CALLS: dict[str, Callable[[Broker], object]] = {
    "run": lambda b: b.run(GetTopic(topic="q")),
    "run of a claim": lambda b: b.run(Claim(topic="q", node="w")),
    "produce": lambda b: b.produce("q", [b"1"]),
    "diff": lambda b: b.diff("q"),
    "delete_records": lambda b: b.delete_records("q", before_seq=1),
    "claim": lambda b: b.claim("q", node="w"),
    "ack": lambda b: b.ack("q", node="w", seqs=[1]),
    "nack": lambda b: b.nack("q", node="w", seqs=[1]),
    "extend": lambda b: b.extend("q", node="w", seqs=[1], lease_ms=1000),
    "return_jobs": lambda b: b.return_jobs("q", node="w", seqs=[1]),
    "begin": lambda b: b.begin("q", node="w", seq=1, lease_id="lease_1"),
    "end_node": lambda b: b.end_node("q", node="w"),
    "suspects": lambda b: b.suspects("q"),
    "work": lambda b: b.work("q", node="w"),
    "detach": lambda b: b.detach("q"),
    "redrive": lambda b: b.redrive("q"),
    "jobs": lambda b: b.jobs("q"),
    "job": lambda b: b.job("q", 1),
    "leases": lambda b: b.leases("q"),
    "strip": lambda b: b.strip("q"),
    "meters": lambda b: b.meters("q"),
    "topic": lambda b: b.topic("q"),
    "topics": lambda b: b.topics(),
    "idempotency_keys": lambda b: b.idempotency_keys("q"),
    "ended": lambda b: b.ended("q"),
    "events": lambda b: b.events(),
    "pin": lambda b: b.pin(1),
    "mark_time": lambda b: b.mark_time(),
    "put_topic": lambda b: b.put_topic("q"),
    "patch_topic": lambda b: b.patch_topic("q", {}),
    "delete_topic": lambda b: b.delete_topic("q"),
    "put_router": lambda b: b.put_router("r", source="q", dest="u"),
    "router": lambda b: b.router("r"),
    "routers": lambda b: b.routers(),
    "delete_router": lambda b: b.delete_router("r"),
    "upgrade_status": lambda b: b.upgrade_status(),
}


def test_every_command_is_in_the_table() -> None:
    public = {name for name in dir(Broker) if not name.startswith("_")}
    about = {"failed", "is_crowded", "keeps_tries", "metrics", "recovery", "waits_for_disk"}
    counts = {"idempotency_keys_count", "router_names", "topic_names"}
    others = {"open", "close", "synced", "charge_copies", "finalize_upgrade", "give_up", "when_failed"}
    assert public - CALLS.keys() == others | about | counts


@pytest.mark.parametrize("name", CALLS)
async def test_no_command_is_taken_after_the_close(broker: Broker, name: str) -> None:
    await make_queue(broker, jobs=1)
    await broker.close()
    with pytest.raises(Closed):
        CALLS[name](broker)


async def test_nobody_can_wait_for_a_sync_after_the_close(broker: Broker) -> None:
    await broker.close()
    with pytest.raises(Closed):
        await broker.synced()
    with pytest.raises(Closed):
        await broker.finalize_upgrade()


async def test_totals_can_still_be_read(broker: Broker) -> None:
    await make_queue(broker, jobs=3)
    await broker.close()
    assert broker.metrics.produced == 3


async def test_what_was_answered_and_what_was_not_awaited_is_all_there_afterwards(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, durability="memory")
    for number in range(100):
        broker.produce("q", [b"%d" % number])
    broker.claim("q", node="w", max_count=10, auto_ack=True)
    await broker.close()
    async with await Broker.open(log.reopen(), clock=clock) as broker:
        assert datas(await read(broker, "q")) == [b"%d" % number for number in range(10, 100)]


async def test_an_answer_that_waits_for_the_disk_is_given_before_the_end(clock: ManualClock) -> None:
    log = GatedLog()
    broker = await Broker.open(log, clock=clock)
    await broker.put_topic("t", {"durability": "fsync"})
    log.gate.clear()
    producing = await start(broker.produce("t", [b"1"]))
    closing = await start(broker.close())
    assert not closing.done()
    log.gate.set()
    await closing
    assert (await producing).first_seq == 1


async def test_a_stream_closed_after_its_broker_is_harmless(broker: Broker) -> None:
    await make_queue(broker, jobs=1)
    stream = broker.work("q", node="w")
    await broker.close()
    stream.close()


async def test_a_clock_that_moves_after_the_close_wakes_nobody(broker: Broker, clock: ManualClock) -> None:
    await make_queue(broker, jobs=1)
    await broker.claim("q", node="w", lease_ms=1000)
    await broker.close()
    clock.advance(10_000)


async def test_a_broker_leaves_no_thread_behind(clock: ManualClock) -> None:
    before = threading.active_count()
    async with await Broker.open(None, clock=clock) as broker:
        await make_queue(broker, jobs=1, durability="fsync")
    assert threading.active_count() == before


async def test_a_directory_is_opened_by_one_broker_at_a_time_and_again_after_the_close(tmp_path: Path) -> None:
    async with await Broker.open(tmp_path / "data") as broker:
        await make_queue(broker, jobs=3)
        await broker.claim("q", node="w")
        with pytest.raises(Conflict):
            await Broker.open(tmp_path / "data")
        assert (await broker.produce("q", [b"4"])).first_seq == 4, "the first one is not disturbed"
    async with await Broker.open(str(tmp_path / "data")) as broker:
        assert (numbers(broker)["in_flight"], numbers(broker)["ready"]) == (1, 3)
    gc.collect()
