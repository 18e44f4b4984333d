"""Changing topics that are there: patches, logs that become queues, and names that only a put brings back."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Broker, Conflict, NotFound, Overloaded, Record, Settings
from tenure.broker import appends, topics
from tenure.broker.engine import Engine
from tenure.broker.rebuild import rebuild
from tenure.broker.trim import trim_step
from tenure.core.invariants import invariants
from tenure.core.snapshot import dump_checkpoint
from tenure.log.log import FileLog
from tenure.log.memory import MemoryLog
from tenure.testing.clock import ManualClock
from tenure.testing.simdisk import SimDisk
from tests.broker.support import datas, fail_by_expiry, make_queue, numbers, read, reopen, snapshot, start, turn

# Patch


async def test_a_patch_changes_the_named_fields_and_no_others(broker: Broker) -> None:
    await make_queue(broker, lease_ms=5_000, priority=3)
    info = await broker.patch_topic("q", {"max_deliveries": 2, "priority": None})
    assert (info.config["lease_ms"], info.config["max_deliveries"], info.config["priority"]) == (5_000, 2, None)
    assert broker.topic("q").config == info.config


async def test_a_patch_of_an_absent_topic_is_not_found(broker: Broker) -> None:
    before = snapshot(broker)
    with pytest.raises(NotFound) as error:
        broker.patch_topic("q", {})
    assert (error.value.code, snapshot(broker)) == ("topic_not_found", before)


async def test_a_patch_to_another_type_is_refused_and_changes_nothing(broker: Broker) -> None:
    await make_queue(broker)
    before = snapshot(broker)
    with pytest.raises(Conflict) as error:
        broker.patch_topic("q", {"type": "log", "lease_ms": 1_000})
    assert (error.value.code, snapshot(broker)) == ("topic_exists_incompatible", before)


async def test_a_patched_cap_takes_effect_at_once(broker: Broker) -> None:
    await broker.produce("t", [b"1", b"2", b"3"])
    await broker.patch_topic("t", {"cap_records": 1})
    assert datas(await read(broker, "t")) == [b"3"]


async def test_a_patch_survives_a_restart(clock: ManualClock) -> None:
    log = MemoryLog()
    broker = await Broker.open(log, clock=clock)
    await make_queue(broker, lease_ms=5_000)
    await broker.patch_topic("q", {"max_deliveries": 2})
    async with await reopen(broker, log, clock) as again:
        config = again.topic("q").config
        assert (config["type"], config["lease_ms"], config["max_deliveries"]) == ("queue", 5_000, 2)


# A log that nobody asked for


async def test_a_log_that_an_append_made_becomes_a_queue_by_a_put(broker: Broker) -> None:
    await broker.produce("q", [Record(data=b"1", tag="x"), Record(data=b"2"), Record(data=b"3")])
    await broker.delete_records("q", seqs=[2])
    info, created = await broker.put_topic("q", {"type": "queue", "lease_ms": 5_000})
    assert (created, info.type, info.config["lease_ms"]) == (False, "queue", 5_000)
    assert numbers(broker)["ready"] == 2
    claim = await broker.claim("q", node="w", max_count=9)
    assert datas(claim.jobs) == [b"1", b"3"]
    await broker.ack("q", node="w", lease_id=claim.lease_id)
    invariants(broker._state)


async def test_a_log_that_was_emptied_becomes_an_empty_queue(broker: Broker) -> None:
    await broker.produce("q", [b"1"])
    await broker.delete_records("q", before_seq=2)
    await broker.put_topic("q", {"type": "queue"})
    invariants(broker._state)
    await broker.produce("q", [b"2"])
    assert datas((await broker.claim("q", node="w")).jobs) == [b"2"]


@pytest.mark.parametrize("made_by", ["router", "dead letter"])
async def test_a_log_that_the_broker_made_becomes_a_queue_by_a_put(
    broker: Broker, clock: ManualClock, made_by: str
) -> None:
    if made_by == "router":
        await broker.put_router("r", source="a", dest="t")
        await broker.produce("a", [b"1"])
    else:
        await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="t")
        await fail_by_expiry(broker, clock)
        await broker.claim("q", node="w")
    await broker.put_topic("t", {"type": "queue"})
    assert datas((await broker.claim("t", node="w")).jobs) == [b"1"]


@pytest.mark.parametrize("how", ["put", "patch", "config"])
async def test_a_log_that_somebody_configured_stays_a_log(broker: Broker, how: str) -> None:
    await broker.produce("t", [b"1"], config={"ttl_ms": 0} if how == "config" else None)
    if how == "put":
        await broker.put_topic("t", {})
    elif how == "patch":
        await broker.patch_topic("t", {})
    with pytest.raises(Conflict) as error:
        broker.put_topic("t", {"type": "queue"})
    assert error.value.code == "topic_exists_incompatible"


async def test_a_queue_never_becomes_a_log(broker: Broker) -> None:
    await broker.produce("q", [b"1"])
    await broker.put_topic("q", {"type": "queue"})
    with pytest.raises(Conflict):
        broker.put_topic("q", {"type": "log"})


async def test_a_claim_on_a_log_that_an_append_made_says_how_it_becomes_a_queue(broker: Broker) -> None:
    await broker.produce("q", [b"1"])
    with pytest.raises(Conflict, match="put it with type queue") as error:
        broker.claim("q", node="w")
    assert error.value.code == "not_a_queue"


@pytest.mark.parametrize("way", ["log", "checkpoint", "trimmed", "salvaged"])
@pytest.mark.parametrize("before", [True, False], ids=["still a log", "a queue by now"])
def test_what_a_topic_is_survives(way: str, before: bool) -> None:
    """What an append made may still become a queue after a restart, and what became one still is one."""
    disk, clock, settings = SimDisk(1), ManualClock(), Settings(segment_bytes=2048, spare_segments=1)
    engine = opened(disk, clock, settings)
    appends.produce(engine, "q", [b"1", b"2"])
    if not before:
        topics.put_topic(engine, "q", {"type": "queue", "lease_ms": 700})
    if way == "trimmed":
        first = engine.log.segments()[0].number
        while engine.log.segments()[0].number == first:
            appends.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
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
        topics.put_topic(again, "q", {"type": "queue", "lease_ms": 700})
    invariants(again.state)
    topic, queue = again.state.queue("q")
    assert (topic.count, queue.cursor, topic.config.lease_ms) == (2, 1, 700)


def opened(disk: SimDisk, clock: ManualClock, settings: Settings, checkpoints: Any = ()) -> Engine:
    engine = Engine(FileLog.open(disk, segment_bytes=settings.segment_bytes), clock=clock, settings=settings)
    engine.recover(checkpoints)
    return engine


# auto_create


async def test_an_append_does_not_create_a_topic_whose_config_says_so(broker: Broker) -> None:
    before = snapshot(broker)
    with pytest.raises(NotFound) as error:
        broker.produce("t", [b"1"], config={"auto_create": False})
    assert (error.value.code, snapshot(broker)) == ("topic_not_found", before)


async def test_an_append_does_not_bring_back_a_topic_that_only_a_put_creates(broker: Broker) -> None:
    await broker.put_topic("t", {"auto_create": False})
    await broker.produce("t", [b"1"])
    await broker.delete_topic("t")
    with pytest.raises(NotFound, match="put it"):
        broker.produce("t", [b"2"])
    assert broker.topics().items == []
    await broker.put_topic("t")
    await broker.produce("t", [b"3"])
    await broker.delete_topic("t")
    assert (await broker.produce("t", [b"4"])).created


async def test_a_job_is_parked_where_its_dead_letter_topic_may_not_be_created(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.put_topic("dead", {"auto_create": False})
    await broker.delete_topic("dead")
    await make_queue(broker, jobs=1, max_deliveries=1, dead_letter="dead")
    await fail_by_expiry(broker, clock)
    assert (await broker.claim("q", node="w")).jobs == []
    assert (numbers(broker)["parked"], broker.topics().items) == (1, ["q"])
    [parked] = broker.jobs("q", state="parked").items
    assert "auto_create was false" in parked["reason"]


async def test_names_kept_from_being_made_again_are_bounded(clock: ManualClock) -> None:
    async with await Broker.open(None, clock=clock, settings=Settings(retired_names_max=2)) as broker:
        for name in ("a", "b", "c"):
            await broker.put_topic(name, {"auto_create": False})
        await broker.delete_topic("a")
        await broker.delete_topic("b")
        with pytest.raises(Overloaded) as error:
            broker.delete_topic("c")
        assert error.value.detail == {"limit": "retired_names_max", "max": 2}
        await broker.patch_topic("c", {"auto_create": True})
        assert await broker.delete_topic("c") == (True, [])


def test_a_retired_name_survives_restarts_and_the_loss_of_its_segment() -> None:
    disk, clock, settings = SimDisk(1), ManualClock(), Settings(segment_bytes=2048, spare_segments=1)
    engine = opened(disk, clock, settings)
    topics.put_topic(engine, "t", {"auto_create": False})
    topics.delete_topic(engine, "t")
    first = engine.log.segments()[0].number
    while engine.log.segments()[0].number == first:
        appends.produce(engine, "filler", [b"x" * 500], config={"cap_records": 1})
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


@pytest.mark.parametrize(("strategy", "left"), [("skip", "letters"), ("block", "parked"), ("block_and_dlq", "parked")])
async def test_a_queue_counts_the_jobs_that_lie_dead_now(broker: Broker, strategy: str, left: str) -> None:
    await make_queue(broker, jobs=3, dead_letter="dead", dlq_strategy=strategy)
    claim = await broker.claim("q", node="w", max_count=3)
    await broker.nack("q", node="w", lease_id=claim.lease_id, dead=True)
    assert (numbers(broker)["dead"], numbers(broker)["dead_lettered"]) == (3, 3)
    await broker.redrive("dead" if left == "letters" else "q", limit=2)
    assert (numbers(broker)["dead"], numbers(broker)["dead_lettered"]) == (1, 3), "the total stays"


async def test_a_job_parked_because_its_letters_are_full_counts_as_dead(broker: Broker) -> None:
    await broker.put_topic("dead", {"cap_records": 1, "discard": "reject"})
    await make_queue(broker, jobs=2, dead_letter="dead")
    await broker.claim("q", node="w", max_count=2)
    for seq in (1, 2):
        await broker.nack("q", node="w", seqs=[seq], dead=True)
    assert (numbers(broker)["parked"], numbers(broker)["dead"]) == (1, 2)


async def test_those_who_read_a_log_go_on_when_it_becomes_a_queue(broker: Broker) -> None:
    await broker.produce("q", [b"1"])
    reading = await start(broker.diff("q", from_seq=1, wait_ms=1000))
    await broker.put_topic("q", {"type": "queue"})
    await broker.produce("q", [b"2"])
    await turn()
    assert datas(reading.result().records) == [b"2"]
