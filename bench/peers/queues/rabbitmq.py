"""RabbitMQ: quorum and classic queues, publisher confirms, manual acks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import aio_pika
import uvloop

from bench.peers.debian import unpacked
from bench.peers.peer import Queue
from bench.peers.server import Server, free_port
from bench.peers.tasks_rate import tasks_rate

__all__ = ["Classic", "Quorum", "RabbitService"]

T = TypeVar("T")
_ERLANG = ("base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools")
_ERLANG += ("ssl", "syntax-tools", "tools", "xmerl", "asn1")
_PACKAGES = ("rabbitmq-server", *(f"erlang-{part}" for part in _ERLANG))
_WAIT_S = 5.0


class RabbitService:
    """The RabbitMQ and the Erlang of Debian's packages, unpacked; its port mapper is a child of the harness too."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        self._root = unpacked(*_PACKAGES)
        self._erlang = self._root / "usr" / "lib" / "erlang"
        [self._emulator] = self._erlang.glob("erts-*")
        [self._rabbit] = (self._root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*")

    def start(self) -> None:
        self.port, mapper_port, inner_port = free_port(), free_port(), free_port()
        environment = self._environment(mapper_port, inner_port)
        log = self._home / "log"
        self._mapper = Server(
            [self._emulator / "bin" / "epmd"], mapper_port, log=self._home / "epmd-log", environment=environment
        )
        command = [self._rabbit / "sbin" / "rabbitmq-server"]
        try:
            self._server = Server(command, self.port, log=log, environment=environment)
        except RuntimeError:
            self._mapper.stop()
            raise

    def _environment(self, mapper_port: int, inner_port: int) -> dict[str, str]:
        programs = self._home / "bin"
        if not programs.exists():
            programs.mkdir()
            self._write_erl(programs / "erl")
            (self._home / "rabbitmq.conf").write_text("vm_memory_high_watermark.relative = 0.6\n")
            (self._home / "plugins").write_text("[].\n")
        return {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self._home),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(inner_port),
            "RABBITMQ_MNESIA_BASE": str(self._home / "data"),
            "RABBITMQ_LOG_BASE": str(self._home / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self._home / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._home / "none"),
        }

    def _write_erl(self, path: Path) -> None:
        """Write a starter: the package's own looks for Erlang where Debian installs it, and nowhere else."""
        binaries = self._emulator / "bin"
        path.write_text(
            f'#!/bin/sh\nexport ROOTDIR="{self._erlang}" BINDIR="{binaries}" EMU=beam PROGNAME=erl\n'
            f'exec "{binaries}/erlexec" "$@"\n'
        )
        path.chmod(0o755)

    def stop(self) -> None:
        self._server.stop()
        self._mapper.stop()

    def pids(self) -> list[int]:
        return [self._server.pid]

    def version(self) -> str:
        return f"RabbitMQ {self._rabbit.name.partition('-')[2]}"

    def settings(self) -> str:
        return "durable queues, persistent messages, publisher confirms, manual acks; one node"


class _RabbitQueue(Queue):
    """One channel. The protocol does not answer acks, so nothing waits for them."""

    client = "aio-pika"
    notes = (
        "publish, awaiting its confirm; basic.get, then basic.ack; in batches, confirms are awaited together, a "
        "consumer has that prefetch, and one ack is for all; the protocol does not answer acks"
    )
    kind: ClassVar[str]

    def __init__(self, port: int, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._name = name
        self._prefetch = 0
        self._run(self._open(port))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def _open(self, port: int) -> None:
        self._connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        self._channel = await self._connection.channel(publisher_confirms=True)
        arguments: dict[str, Any] = {"x-queue-type": self.kind}
        self._queue = await self._channel.declare_queue(self._name, durable=True, arguments=arguments)
        self._pushed: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()

    def produce(self, payload: bytes, *, batch: int, calls: int) -> None:
        self._run(self._produce(payload, batch, calls))

    async def _produce(self, payload: bytes, batch: int, calls: int) -> None:
        for _ in range(calls):
            if batch == 1:
                await _publish(self._channel, self._name, payload)
            else:
                await asyncio.gather(*(_publish(self._channel, self._name, payload) for _ in range(batch)))

    def claim_ack(self, *, batch: int, calls: int) -> int:
        return self._run(self._claim_ack(batch, calls))

    async def _claim_ack(self, batch: int, calls: int) -> int:
        if batch > 1 and not self._prefetch:
            await self._consume(batch)
        take = self._take if batch > 1 else self._get
        return sum([await take(batch) for _ in range(calls)])

    async def _consume(self, prefetch: int) -> None:
        self._prefetch = prefetch
        await self._channel.set_qos(prefetch_count=prefetch)
        await self._queue.consume(self._pushed.put)

    async def _get(self, _: int) -> int:
        message = await self._queue.get(fail=False)
        if message is None:
            return 0
        await message.ack()
        return 1

    async def _take(self, batch: int) -> int:
        """Wait for pushed messages, until there are enough or no more come, and ack all of them at once."""
        count, last = 0, None
        try:
            while count < batch:
                last = await asyncio.wait_for(self._pushed.get(), _WAIT_S) if self._pushed.empty() else self._next()
                count += 1
        except TimeoutError:
            pass
        if last is not None:
            await last.ack(multiple=True)
        return count

    def _next(self) -> aio_pika.abc.AbstractIncomingMessage:
        return self._pushed.get_nowait()

    def receive(self) -> Iterator[bytes]:
        self._run(self._consume(1))
        while True:
            message = self._run(self._pushed.get())
            yield message.body
            self._run(message.ack())

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.close()

    @classmethod
    def concurrent_rate(cls, port: int, name: str, payload: bytes, *, connections: int, seconds: float) -> float:
        async def measure() -> float:
            opened = [await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/") for _ in range(connections)]
            channels = [await each.channel(publisher_confirms=True) for each in opened]
            calls: list[Any] = [lambda c=channel: _publish(c, name, payload) for channel in channels]  # type: ignore[misc]
            rate = await tasks_rate(calls, seconds)
            for each in opened:
                await each.close()
            return rate

        return uvloop.run(measure())


async def _publish(channel: aio_pika.abc.AbstractChannel, name: str, payload: bytes) -> None:
    message = aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, routing_key=name)


class Quorum(_RabbitQueue):
    """A quorum queue of one node: a Raft log, synced before it confirms."""

    kind = "quorum"
    syncs = "1 / 1.5"


class Classic(_RabbitQueue):
    """A classic durable queue: confirms follow the sync of persistent messages."""

    kind = "classic"
    syncs = "1 / 0"
