"""`Load`: 24 clients that know every member and outlive all of them; they record every answer.

Four queues, two of them with durable leases; to each, three clients produce and three claim, extend, ack, nack and
forget. The actors are those of the soak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

from tenure import AsyncClient
from tenure.client import ClientSettings
from tests.soak.journal import Journal
from tests.soak.producer import Producer
from tests.soak.worker import Worker

__all__ = ["CAREFUL", "DEAD", "DELIVERIES_MAX", "QUEUES", "Load", "put_queues"]

CAREFUL: Final = "careful"
"""How the names of queues with durable leases begin, and so the names of their clients and ids."""
DEAD: Final = "dead"
DELIVERIES_MAX: Final = {"brisk-a": 4, "brisk-b": 6, "careful-a": 4, "careful-b": 6}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "brisk": {"durability": "fsync"},
    CAREFUL: {"durability": "replicated", "leases_durable": True},
}
QUEUES: Final[dict[str, dict[str, Any]]] = {
    name: {**_KINDS[name.partition("-")[0]], "max_deliveries": limit, "dead_letter": DEAD}
    for name, limit in DELIVERIES_MAX.items()
}
_CLIENT: Final = ClientSettings(
    connect_ms=2_000,
    answer_ms=4_000,
    attempts_max=8,
    retry_for_ms=8_000,
    backoff_max_ms=400,
    retry_after_max_ms=500,
    reconnect_max_ms=400,
    stream_idle_ms=3_000,
)
T = TypeVar("T")


async def put_queues(url: str) -> None:
    """Create the queues."""
    async with AsyncClient(url, settings=_CLIENT) as client:
        for topic, config in QUEUES.items():
            await client.put_topic(topic, type="queue", **config)


class Load:
    """Everything that goes on at once. Cancel nothing: `stop`, then await `run`."""

    def __init__(self, url: str, journal: Journal, *, seed: int) -> None:
        self._url, self._journal, self._seed = url, journal, seed
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let every client finish what it is at."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            for topic in QUEUES:
                for actor in self._actors(topic):
                    tasks.create_task(actor)

    def _actors(self, topic: str) -> list[Coroutine[Any, Any, None]]:
        return [
            self._actor(Producer, topic, "keyed").call_by_call(keyed=True),
            self._actor(Producer, topic, "plain").call_by_call(keyed=False),
            self._actor(Producer, topic, "gathering").gathering(),
            self._actor(Worker, topic, "poller").poll(),
            self._actor(Worker, topic, "second").poll(),
            self._actor(Worker, topic, "follower").follow(),
        ]

    def _actor(self, actor: Callable[..., T], topic: str, kind: str) -> T:
        name = f"{topic}-{kind}"
        client = AsyncClient(self._url, node=name, settings=_CLIENT)
        return actor(client, self._journal, topic, random=Random(f"{self._seed} {name}"), stopping=self._stopping)
