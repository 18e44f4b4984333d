"""`Load`: producers, workers and watchers that outlive the server, each with a client of its own, and record it all.

An actor does one thing after the other. It waits for a call for a while and gives up on some calls on purpose, so that
every kind of call also ends with an unknown outcome.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, Final

from tenure import AsyncClient, Indeterminate, TenureError
from tenure.client import ClientSettings, Records
from tests.soak.journal import Journal, id_of
from tests.soak.worker import POISON, Worker

__all__ = ["CLIENT", "DELIVERIES_MAX", "LOG", "QUEUES", "Load"]

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
LOG: Final = "journal"
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
_DEPTH_MAX: Final = 300
_PAUSE_S: Final = 0.05


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
                for keyed in (True, False):
                    tasks.create_task(self._produce(topic, f"{topic}-{'keyed' if keyed else 'plain'}", keyed=keyed))
            for topic in QUEUES:
                for kind in ("poller", "second"):
                    tasks.create_task(self._worker(topic, kind).poll())
                tasks.create_task(self._worker(topic, "follower").follow())

    def client(self, name: str) -> AsyncClient:
        """Return a client through the proxy, with connections of its own."""
        return AsyncClient(self._url, node=name, settings=CLIENT)

    def _random(self, name: str) -> Random:
        return Random(f"{self._seed} {name}")

    def _worker(self, topic: str, kind: str) -> Worker:
        name = f"{topic}-{kind}"
        return Worker(self.client(name), self.journal, topic, random=self._random(name), stopping=self.stopping)

    # Producing

    async def _produce(self, topic: str, name: str, *, keyed: bool) -> None:
        random, number = self._random(name), 0
        async with self.client(name) as client:
            while not self.stopping.is_set():
                number += 1
                kind = POISON if random.random() < 0.04 else "job"
                ids = [f"{name}-{kind}-{number}-{index}" for index in range(random.choice((1, 1, 1, 4, 20)))]
                producing = _Produce(client, self.journal, topic, name, ids, key=f"{name}-{number}" if keyed else None)
                await producing.run(random, self.stopping)
                await asyncio.sleep(_PAUSE_S)
                while self.journal.depth.get(topic, 0) > _DEPTH_MAX and not self.stopping.is_set():
                    await asyncio.sleep(_PAUSE_S)

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


class _Produce:
    """One batch: sent once, or with a key again until its outcome is known, and sometimes once more after that."""

    def __init__(
        self, client: AsyncClient, journal: Journal, topic: str, name: str, ids: list[str], *, key: str | None
    ) -> None:
        self._client, self._journal, self._topic, self._name = client, journal, topic, name
        self._ids, self._key = ids, key

    async def run(self, random: Random, stopping: asyncio.Event) -> None:
        pad_bytes = random.randrange(random.choice((10, 300, 300, 8_000)))
        records = [b'"%s%s"' % (id.encode(), b"." * pad_bytes) for id in self._ids]
        self._note("invoke")
        unknown = False
        while True:
            patience_s = random.uniform(0.001, 0.05) if random.random() < 0.05 else None
            try:
                await self._send(records, patience_s)
                break
            except (Indeterminate, TimeoutError):
                unknown = True
            except TenureError:
                if not unknown:
                    self._note("fail")
                    await asyncio.sleep(_PAUSE_S)
                    return
            if self._key is None or random.random() < 0.3 or stopping.is_set():
                self._note("unknown")
                return
        if self._key is not None and random.random() < 0.1:
            await self._once_more(records)

    async def _send(self, records: list[bytes], patience_s: float | None) -> None:
        sending = self._client.produce(self._topic, records, idempotency_key=self._key)
        produced = await asyncio.wait_for(sending, patience_s)
        self._note("ok", seqs=produced.seqs)

    async def _once_more(self, records: list[bytes]) -> None:
        """Send a batch that is known to be there: it may be refused or lost, and must not be appended."""
        with suppress(TenureError):
            await self._send(records, None)

    def _note(self, outcome: Any, *, seqs: range | tuple[()] = ()) -> None:
        journal = self._journal
        journal.history.produce(self._ids, outcome, at=journal.now_ms(), topic=self._topic, by=self._name, seqs=seqs)
