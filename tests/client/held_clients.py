"""A client over a wire that a test can hold, and a queue of its own on a real server: on a loop, and for threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

import msgspec

from tenure import AsyncClient, Client
from tenure.client import Acker, AsyncProducer, ClientSettings, Diff, Job, Producer
from tenure.contract.replies import QueueCounts
from tests.client.held_wire import HeldBlockingWire, HeldWire
from tests.kit.server import Running

__all__ = ["HeldBlockingClient", "HeldClient", "held_blocking_client", "held_client"]

_QUEUE: dict[str, Any] = {"type": "queue", "durability": "fsync"}
_names = count(1)


class HeldClient:
    """A client on an event loop, its wire, and a queue of its own."""

    def __init__(self, client: AsyncClient, wire: HeldWire, topic: str) -> None:
        self.client = client
        self.wire = wire
        self.topic = topic

    def acker(self, **options: Any) -> Acker:
        return Acker(self.client, self.topic, **options)

    def producer(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(self.client, self.topic, **options)

    async def jobs(self, number: int, *, max_count: int = 1_000) -> list[Job]:
        """That many jobs, put and claimed."""
        await self.client.produce(self.topic, list(range(number)))
        jobs: list[Job] = []
        while len(jobs) < number:
            jobs += (await self.client.claim(self.topic, max_count=max_count)).jobs
        self.wire.clear()
        return jobs

    async def counts(self) -> QueueCounts:
        counts = (await self.client.topic(self.topic)).queue
        assert counts is not None
        return counts

    async def stored(self) -> list[Any]:
        """The data of everything in the topic, in order."""
        found = await self.client.diff(self.topic, limit=1_000)
        data = _data(found)
        while not found.caught_up:
            found = await self.client.diff(self.topic, from_seq=found.next_from_seq, limit=1_000)
            data += _data(found)
        return data


class HeldBlockingClient:
    """For threads, of which it has some."""

    def __init__(self, client: Client, wire: HeldBlockingWire, topic: str, threads: ThreadPoolExecutor) -> None:
        self.client = client
        self.wire = wire
        self.topic = topic
        self._threads = threads

    def producer(self, **options: Any) -> Producer:
        return Producer(self.client, self.topic, **options)

    def run(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._threads.submit(work, *args)

    def stored(self) -> list[Any]:
        """The data of everything in the topic, in order."""
        return _data(self.client.diff(self.topic, limit=1_000))


def _data(found: Diff) -> list[Any]:
    return [msgspec.json.decode(record.data) for record in found.records if record.data is not None]


def _limits(settings: dict[str, Any]) -> ClientSettings:
    return ClientSettings(**{"backoff_min_ms": 1, "backoff_max_ms": 2} | settings)


@asynccontextmanager
async def held_client(server: Running, **settings: Any) -> AsyncIterator[HeldClient]:
    limits, topic = _limits(settings), f"bench-{next(_names)}"
    wire = HeldWire(server.url, settings=limits)
    async with AsyncClient(wire=wire, settings=limits) as client:
        await client.put_topic(topic, **_QUEUE)
        wire.clear()
        yield HeldClient(client, wire, topic)


@contextmanager
def held_blocking_client(server: Running, **settings: Any) -> Iterator[HeldBlockingClient]:
    limits, topic = _limits(settings), f"bench-{next(_names)}"
    wire = HeldBlockingWire(server.url, settings=limits)
    with Client(wire=wire, settings=limits) as client, ThreadPoolExecutor(32) as threads:
        client.put_topic(topic, **_QUEUE)
        wire.clear()
        yield HeldBlockingClient(client, wire, topic, threads)
