"""A broker whose log lives in a store: what it answered survives the loss of its machine."""

from __future__ import annotations

import asyncio

import pytest

from tenure import Broker
from tenure.chain.settings import ChainSettings
from tenure.clock import SystemClock
from tenure.errors import Conflict, NotLeader
from tenure.testing.simdisk import SimDisk
from tenure.testing.simstore import SimStore
from tests.chain.kit import open_log, opener


def test_jobs_leases_deadlines_and_counts_are_there_on_a_new_machine():
    async def live() -> None:
        store = SimStore()
        first = await Broker.open(opener(store, SimDisk()))
        await first.put_topic("mail", {"type": "queue", "durability": "fsync", "lease_ms": 60_000})
        await first.produce("mail", [b"1", b"2", b"3"], idempotency_key="once")
        grant = await first.claim("mail", node="w", max_count=2)
        assert grant.lease_id is not None
        await first.ack("mail", node="w", seqs=[1], lease_ids=[grant.lease_id])
        await first.synced()
        leases = first.leases("mail").items
        async with await Broker.open(opener(store, SimDisk(1))) as second:
            [lease], [before] = second.leases("mail").items, leases
            assert (lease.lease_id, lease.node, lease.seqs) == (before.lease_id, before.node, before.seqs)
            assert abs(lease.deadline - before.deadline) < 1_000  # shown by the wall clock, which was read anew
            assert (second.topic("mail").count, second.job("mail", 2).deliveries) == (2, 1)
            again = await second.produce("mail", [b"1", b"2", b"3"], idempotency_key="once")
            assert (again.deduped, again.first_seq) == (True, 1)
            await second.ack("mail", node="w", seqs=[2], lease_ids=[grant.lease_id])

    asyncio.run(live())


def test_a_broker_that_was_overtaken_says_that_nothing_happened():
    async def live() -> None:
        store = SimStore()
        first = await Broker.open(opener(store, SimDisk()))
        await first.put_topic("mail", {"type": "queue", "durability": "fsync"})
        async with await Broker.open(opener(store, SimDisk(1))) as second:
            with pytest.raises(NotLeader):
                await first.produce("mail", [b"lost"])
            assert second.topic("mail").count == 0
        await first.close()

    asyncio.run(live())


def test_replicated_is_fsync_with_a_home_and_refused_without():
    async def live() -> None:
        store, disk = SimStore(), SimDisk()
        async with await Broker.open(opener(store, disk)) as broker:
            await broker.put_topic("mail", {"type": "queue", "durability": "replicated"})
            produced = await broker.produce("mail", [b"1"])
            assert broker.topic("mail").durable_seq == produced.last_seq
        disk.remove("home.json")  # as a copy of the directory, which has a home no more
        async with await Broker.open(disk) as alone:
            for refused in (
                lambda: alone.produce("mail", [b"2"]),
                lambda: alone.produce("mail", [b"2", b"3"]),
                lambda: alone.put_topic("other", {"type": "queue", "durability": "replicated"}),
            ):
                with pytest.raises(Conflict) as caught:
                    await refused()
                assert caught.value.code == "not_replicated"
            assert len((await alone.claim("mail", node="w")).jobs) == 1

    asyncio.run(live())


def test_a_directory_whose_log_has_a_home_is_not_opened_alone():
    async def live() -> None:
        disk = SimDisk()
        await (await Broker.open(opener(SimStore(), disk))).close()
        before = {name: disk.content(name) for name in disk.names()}
        with pytest.raises(Conflict) as caught:
            await Broker.open(disk)
        assert caught.value.code == "has_home"
        assert {name: disk.content(name) for name in disk.names()} == before

    asyncio.run(live())


def test_durable_answers_share_a_link_where_links_are_apart():
    async def live() -> None:
        store, clock = SimStore(), SystemClock()
        apart = ChainSettings(silence_ms=3, hint_ms=1, link_interval_ms=200)
        broker = await Broker.open(lambda: open_log(store, SimDisk(), settings=apart))
        await broker.put_topic("mail", {"type": "queue", "durability": "fsync"})
        before, began_ms = len(store.objects), clock.boot_ms()

        async def produce(number: int) -> None:
            await asyncio.sleep(number * 0.002)
            await broker.produce("mail", [b"%d" % number])

        await asyncio.gather(*(produce(number) for number in range(100)))
        links, took_ms = len(store.objects) - before, clock.boot_ms() - began_ms
        assert links <= 2 + took_ms // 200
        await broker.close()

    asyncio.run(live())
