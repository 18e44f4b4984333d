"""Tenure itself: through `Client`, over a bare socket, and through the producer that gathers concurrent puts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import uvloop

import tenure
from bench.http import Claimed
from bench.http import Client as BareClient
from bench.peers.environment import child_environment
from bench.peers.peer import Queue
from bench.peers.server import Server, free_port
from bench.peers.tasks_rate import tasks_rate
from tenure.client.client import AsyncClient, Client

__all__ = ["TenureClient", "TenureDurable", "TenureProducer", "TenureService", "TenureSocket"]

_CONFIG: dict[str, Any] = {"type": "queue", "durability": "fsync"}


class TenureService:
    """`tenure serve` with its defaults."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0

    def start(self) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "tenure.cli.main", "serve", "--data", str(self._home / "data")]
        command += ["--port", str(self.port), "--log-level", "warning"]
        self._server = Server(command, self.port, log=self._home / "log", environment=child_environment())

    def stop(self) -> None:
        self._server.stop()

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        return f"Tenure {tenure.__version__}"

    def settings(self) -> str:
        return 'queues with durability="fsync"; server settings left at their defaults'


class TenureClient(Queue):
    """The blocking client, as users write it."""

    client = "tenure"
    syncs = "1 / 1"
    notes = "produce and queue.claim + lease.ack; a work stream for end-to-end latency; AsyncClient for 32 connections"
    config: ClassVar = _CONFIG

    def __init__(self, port: int, name: str) -> None:
        self._client = Client(f"http://127.0.0.1:{port}")
        self._client.put_topic(name, **self.config)
        self._name = name
        self._queue = self._client.queue(name)

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        records = [payload] * batch
        for _ in range(calls):
            self._client.produce(self._name, records)

    def claim_ack(self, *, batch: int, calls: int) -> int:
        count = 0
        for _ in range(calls):
            lease = self._queue.claim(max_count=batch)
            if lease:
                lease.ack()
            count += len(lease)
        return count

    def receive(self) -> Iterator[bytes]:
        with self._client.work(self._name) as feed:
            for jobs in feed:
                for job in jobs:
                    yield bytes(job.data)
                    self._client.ack(self._name, [job.seq])

    def close(self) -> None:
        self._client.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        async def measure() -> float:
            async with AsyncClient(f"http://127.0.0.1:{port}") as client:
                await client.put_topic(name, **_CONFIG)
                return await tasks_rate([lambda: client.produce(name, [payload])] * connections, seconds)

        return uvloop.run(measure())


class TenureDurable(TenureClient):
    """The same with claims that wait for their sync too, as the peers that log what is handed out do."""

    syncs = "1 / 2"
    notes = "as above, with leases_durable=True: claims wait for their sync too"
    config: ClassVar = {**_CONFIG, "leases_durable": True}


class TenureProducer(TenureClient):
    """The producer that gathers what concurrent callers put into few requests."""

    notes = "AsyncClient.producer: puts that wait at the same time share a request"

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        record = msgspec.json.decode(payload)

        async def measure() -> float:
            async with AsyncClient(f"http://127.0.0.1:{port}") as client:
                await client.put_topic(name, **_CONFIG)
                async with client.producer(name) as producer:
                    return await tasks_rate([lambda: producer.put(record)] * connections, seconds)

        return uvloop.run(measure())


class TenureSocket(Queue):
    """Requests written by hand on a socket: the server without the cost of a client library."""

    client = "none"
    syncs = "1 / 1"
    notes = "HTTP requests prepared as bytes, on one socket"

    def __init__(self, port: int, name: str) -> None:
        self._client = BareClient(port)
        self._client.call("PUT", f"/v0/topics/{name}", msgspec.json.encode(_CONFIG))
        self._path = f"/v0/topics/{name}"
        self._decoder = msgspec.json.Decoder(Claimed)

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        body = b'{"records":[' + b",".join([b'{"data":' + payload + b"}"] * batch) + b"]}"
        for _ in range(calls):
            self._client.call("POST", f"{self._path}?return_seqs=false", body)

    def claim_ack(self, *, batch: int, calls: int) -> int:
        wanted, count = msgspec.json.encode({"node": "bench", "max": batch}), 0
        for _ in range(calls):
            jobs = self._decoder.decode(self._client.call("POST", f"{self._path}/claim", wanted)).claimed
            seqs = [job.seq for job in jobs]
            if seqs:
                body = msgspec.json.encode({"node": "bench", "seqs": seqs})
                self._client.call("POST", f"{self._path}/ack", body)
            count += len(seqs)
        return count

    def receive(self) -> Iterator[bytes]:
        raise NotImplementedError("measured through the client")

    def close(self) -> None:
        self._client.close()
