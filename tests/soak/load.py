"""`Load`: producers, workers and watchers that outlive the server, each with a client of its own, and record it all.

An actor does one thing after the other. It waits for a call for a while and gives up on some calls on purpose, so that
every kind of call also ends with an unknown outcome.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from tenure import AsyncClient
from tenure.client import ClientSettings, Records
from tests.soak.container import Container
from tests.soak.journal import Journal, id_of
from tests.soak.producer import Producer
from tests.soak.worker import Worker

__all__ = ["CLIENT", "DELIVERIES_MAX", "LOG", "MIRROR", "QUEUES", "Load", "configs_of"]

DELIVERIES_MAX: Final = {"synced": 4, "careful": 6}
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "synced": {"durability": "fsync", "max_deliveries": DELIVERIES_MAX["synced"], "dead_letter": "dead"},
    "careful": {
        "durability": "fsync",
        "leases_durable": True,
        "max_deliveries": DELIVERIES_MAX["careful"],
        "dead_letter": "dead",
        "retry_backoff": {"min_ms": 20, "max_ms": 200},
    },
    "written": {"durability": "disk", "claim_jitter_ms": 5},
}
_MORE: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"max_in_flight": 30},
    {"max_ack_holes": 40},
    {"cap_records": 250, "discard": "reject"},
    {"claim_jitter_ms": 30},
    {"priority": -500},
)
"""What a seed may add to a queue; none of it changes what is promised."""
LOG: Final = "journal"
MIRROR: Final = "mirror"
"""Where a router copies the log to."""
CLIENT: Final = ClientSettings(
    connect_ms=2_000,
    answer_ms=3_000,
    attempts_max=3,
    retry_for_ms=4_000,
    backoff_max_ms=400,
    retry_after_max_ms=500,
    reconnect_max_ms=400,
    stream_idle_ms=3_000,
)


def configs_of(seed: int) -> dict[str, dict[str, Any]]:
    """Return the configs of the queues in the round of a seed."""
    random = Random(f"configs {seed}")
    return {topic: config | random.choice(_MORE) for topic, config in QUEUES.items()}


class Load:
    """Everything that goes on at once. Cancel nothing: `stop`, then await `run`."""

    def __init__(self, url: str, journal: Journal, *, seed: int) -> None:
        self.journal = journal
        self.stopping = asyncio.Event()
        self.reached: dict[str, int] = {}
        self._url = url
        self._seed = seed

    def stop(self) -> None:
        """Let every actor finish what it is at."""
        self.stopping.set()

    async def run(self) -> None:
        """Work until `stop`."""
        async with asyncio.TaskGroup() as tasks:
            for topic in (*QUEUES, LOG):
                for kind in ("keyed", "plain"):
                    tasks.create_task(self._producer(topic, kind).call_by_call(keyed=kind == "keyed"))
            for topic in QUEUES:
                tasks.create_task(self._producer(topic, "gathering").gathering())
                tasks.create_task(self._worker(topic, "poller").poll())
                tasks.create_task(self._worker(topic, "second", Container).poll())
                tasks.create_task(self._worker(topic, "follower").follow())
                tasks.create_task(self._worker(topic, "third", Container).follow())

    def client(self, name: str) -> AsyncClient:
        """Return a client through the proxy, with connections of its own."""
        return AsyncClient(self._url, node=name, settings=CLIENT)

    def _random(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")

    def _worker(self, topic: str, kind: str, worker: type[Worker] = Worker) -> Worker:
        name = f"{topic}-{kind}"
        return worker(self.client(name), self.journal, topic, random=self._random(name), stopping=self.stopping)

    def _producer(self, topic: str, kind: str) -> Producer:
        name = f"{topic}-{kind}"
        return Producer(self.client(name), self.journal, topic, random=self._random(name), stopping=self.stopping)

    # Watching

    async def watch(self, name: str) -> None:
        """Follow the log until cancelled."""
        async with self.client(name) as client, client.watch({LOG: 0}) as events:
            async for event in events:
                if isinstance(event, Records):
                    seqs = [record.seq for record in event.records]
                    ids = [id_of(record.data) for record in event.records]
                    self.journal.history.watched(LOG, seqs, ids, by=name)
                    self.reached[name] = max([self.reached.get(name, 0), *seqs])
                elif type(event).__name__ == "Tombstone":
                    self.journal.problems.append(f"{name} was told of a loss: {event}")
