"""The servers are started once; every test has a prefix of its own on them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import cast

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode

from tenure.testing.fake_timers import FakeTimers
from tenure.timers import Timers, TimersSettings
from tests.kit import redis_servers as servers

SETTINGS = TimersSettings(batch_max=100, timers_max=5_000, payload_bytes_max=100_000, batch_bytes_max=200_000)


@pytest.fixture(scope="session")
def redis_port() -> Iterator[int]:
    with servers.server() as server:
        yield server.port


@pytest.fixture(scope="session")
def cluster_ports() -> Iterator[list[int]]:
    with servers.cluster() as nodes:
        yield [node.port for node in nodes]


@dataclass
class World:
    """Timers to test, whatever they stand on, and the time they go by."""

    timers: Timers
    kind: str

    async def now_ms(self) -> int:
        return (await self.timers.stats("clock")).now_ms

    async def pass_ms(self, ms: int) -> None:
        """Return when so much time has passed on the clock that the timers go by."""
        if isinstance(self.timers, FakeTimers):
            self.timers.clock.advance(ms)
            return
        end = await self.now_ms() + ms
        while (left := end - await self.now_ms()) > 0:
            await asyncio.sleep(left / 1000)


@pytest.fixture(params=["single", "cluster", "fake"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The three that keep one contract."""
    prefix = f"t-{os.urandom(6).hex()}"
    if request.param == "fake":
        yield World(FakeTimers(settings=SETTINGS), "fake")
        return
    client = client_of(request)
    async with Timers(client, prefix=prefix, settings=SETTINGS) as timers:
        yield World(timers, request.param)
    await client.aclose()


def client_of(request: pytest.FixtureRequest) -> Redis | RedisCluster:
    if request.param == "single":
        return Redis(port=cast("int", request.getfixturevalue("redis_port")))
    ports = cast("list[int]", request.getfixturevalue("cluster_ports"))
    return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in ports])


@pytest.fixture
async def redis(redis_port: int) -> AsyncIterator[Redis]:
    client = Redis(port=redis_port)
    yield client
    await client.aclose()


@pytest.fixture
async def timers(redis: Redis) -> AsyncIterator[Timers]:
    """Timers on a real single server."""
    async with Timers(redis, prefix=f"t-{os.urandom(6).hex()}", settings=SETTINGS) as timers:
        yield timers
