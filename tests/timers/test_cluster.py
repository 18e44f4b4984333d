"""Timers on a cluster that changes under them: slots move, and primaries die."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.crc import key_slot

from tenure.errors import Overloaded, TenureError
from tenure.timers import NewTimer, Timers, TimersSettings
from tests.kit import redis_servers as servers
from tests.kit.redis_servers import Server

PATIENT = TimersSettings(attempts_max=1_000, retry_for_ms=30_000, backoff_max_ms=100, connect_ms=2_000)
QUICK = TimersSettings(attempts_max=2, retry_for_ms=200, connect_ms=2_000)


@asynccontextmanager
async def timers_on(ports: list[int], settings: TimersSettings = PATIENT) -> AsyncIterator[Timers]:
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in ports])
    async with Timers(client, settings=settings) as timers:
        yield timers
    await client.aclose()


def slot_of(topic: str) -> int:
    return key_slot(f"{{{topic}}}".encode())


def home_of(nodes: list[Server], topic: str) -> Server:
    return nodes[slot_of(topic) // servers.SHARE]


def command(node: Server, *args: object) -> object:
    with node.client() as client:
        return client.execute_command(*args)


async def test_topics_live_on_all_nodes_and_every_key_of_one_on_one(cluster_ports: list[int]):
    async with timers_on(cluster_ports) as timers:
        for number in range(12):
            await timers.schedule(f"topic-{number}", number, delay=0)
            (timer,) = await timers.claim(f"topic-{number}")
            assert (await timers.commit(f"topic-{number}", [timer])).count == 1
    assert len({slot_of(f"topic-{number}") // servers.SHARE for number in range(12)}) == 3


async def test_a_wake_up_reaches_a_sleeper_that_listens_to_any_node(cluster_ports: list[int]):
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", cluster_ports[0])])
    no_looking = TimersSettings(wait_max_ms=600_000, poll_ms=600_000)
    prefix = f"t-{os.urandom(6).hex()}"
    async with Timers(client, prefix=prefix, settings=no_looking) as timers:
        for number in range(6):
            waiting = asyncio.create_task(timers.wait(f"topic-{number}"))
            await asyncio.sleep(0.01)
            await timers.schedule(f"topic-{number}", 1, delay=10)
            assert await asyncio.wait_for(waiting, 30)
    await client.aclose()


async def test_a_slot_that_moves_is_followed_while_it_moves_and_after():
    with servers.cluster() as nodes:
        ports = [node.port for node in nodes]
        async with timers_on(ports) as timers, timers_on(ports, QUICK) as quick:
            await timers.schedule("t", 1, delay=0, timer_id="before")
            source, slot = home_of(nodes, "t"), slot_of("t")
            target = nodes[(nodes.index(source) + 1) % 3]
            source_id, target_id = command(source, "CLUSTER MYID"), command(target, "CLUSTER MYID")
            command(target, "CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            command(source, "CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            keys = command(source, "CLUSTER GETKEYSINSLOT", slot, 100)
            assert isinstance(keys, list)
            command(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            # The source answers ASK, the target TRYAGAIN: keys that it lacks may be still to come.
            with pytest.raises(Overloaded) as caught:
                await quick.schedule("t", 2, delay=0, timer_id="during")
            assert caught.value.code == "slot_moving"
            scheduling = asyncio.create_task(timers.schedule("t", 2, delay=0, timer_id="during"))
            await asyncio.sleep(0.05)
            for node in (target, source, *nodes):
                command(node, "CLUSTER SETSLOT", slot, "NODE", target_id)
            await scheduling
            assert {timer.timer_id for timer in await timers.claim("t", max_count=9)} == {"before", "during"}
            await timers.schedule("t", 3, delay=0, timer_id="after")
            assert [timer.timer_id for timer in await timers.claim("t", max_count=9)] == ["after"]


async def test_a_primary_that_dies_is_followed_to_its_replica():
    with servers.cluster(replicas=1) as nodes:
        topic = next(f"t{number}" for number in range(99) if home_of(nodes, f"t{number}") is nodes[0])
        async with timers_on([node.port for node in nodes]) as timers:
            await timers.schedule_many(topic, [NewTimer(payload=i, delay=0, timer_id=str(i)) for i in range(10)])
            held = await timers.claim(topic, max_count=5)
            command(nodes[0], "WAIT", 1, 5000)
            nodes[0].kill()
            assert (await timers.commit(topic, held)).count + (await timers.extend(topic, held)).count == 5
            rest = await timers.claim(topic, max_count=10)
            assert {timer.timer_id for timer in [*held, *rest]} == {str(i) for i in range(10)}
            await timers.schedule(topic, 11, delay=0)
            assert await asyncio.wait_for(timers.wait(topic), 30)


async def test_a_cluster_with_a_part_missing_says_so():
    with servers.cluster() as nodes:
        ports = [node.port for node in nodes]
        async with timers_on(ports) as patient, timers_on(ports, QUICK) as timers:
            await patient.schedule("t", 1, delay=0)
            home_of(nodes, "t").kill()
            with pytest.raises(TenureError) as caught:
                await timers.claim("t")
            assert caught.value.code in ("unreachable", "cluster_down", "indeterminate")
