"""The real command, in a process of its own, and directories for it to look at."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tenure import Broker
from tests.kit.server import Running, serving
from tests.kit.warm_command import WarmCommand

Tenure = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = Path(sys.executable).with_name("tenure")


@pytest.fixture(scope="session")
def tenure() -> Iterator[Tenure]:
    """Run `tenure` as a user would, without a terminal."""
    command = WarmCommand()

    def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return command.run([*map(str, arguments)], stdin=stdin, env=surroundings(**environment))

    yield run
    command.close()


def surroundings(**environment: str) -> dict[str, str]:
    """Our variables, without what somebody may have set for colours, or for servers of their own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("NO_COLOR", "FORCE_COLOR"))}
    return {name: value for name, value in ours.items() if not name.startswith("TENURE_")} | environment


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests; each takes a queue of its own."""
    with serving(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


def lose(server: Running, queue: str, seqs: list[int]) -> None:
    """Let a worker of its own claim all that is ready and die: it had begun these jobs, and the others are returned."""
    node = uuid.uuid4().hex
    gone = {"node": node, "exit_code": 137, "begun": {queue: seqs}}
    with server.client() as client:
        claim = {"node": node, "max": 1_000, "isolate": True}
        client.post(f"/v0/topics/{queue}/claim", json=claim).raise_for_status()
        client.post("/v0/workers/hello", json={"node": "next", "queues": [queue], "gone": [gone]}).raise_for_status()


class Remote:
    """The command against a running server."""

    def __init__(self, tenure: Tenure, url: str) -> None:
        self._tenure = tenure
        self.url = url

    def __call__(self, *arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return self._tenure(*arguments, stdin=stdin, **({"TENURE_URL": self.url} | environment))

    def ok(self, *arguments: object, stdin: str = "") -> str:
        """The text that it prints, where it must succeed and say nothing on the side."""
        done = self(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        """The document that it prints."""
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start it and do not wait."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.Popen(
            [COMMAND, *map(str, arguments)], env=surroundings(TENURE_URL=self.url, PYTHONUNBUFFERED="1"), **options
        )


def until_connected(child: subprocess.Popen[Any]) -> None:
    """Wait until a child has opened a socket: then it is past its start and talks to the server."""
    for _ in range(6_000):
        assert child.poll() is None, "it ended by itself"
        links = []
        for link in Path(f"/proc/{child.pid}/fd").iterdir():
            with suppress(OSError):
                links.append(str(link.readlink()))
        if any(link.startswith("socket:") for link in links):
            return
        time.sleep(0.01)
    raise AssertionError("it never connected")


@pytest.fixture
def remote(tenure: Tenure, server: Running) -> Remote:
    return Remote(tenure, server.url)


@pytest.fixture
def queue() -> str:
    """A name that nobody else has."""
    return f"q-{uuid.uuid4().hex[:12]}"


async def _fill(directory: Path) -> None:
    async with await Broker.open(directory) as broker:
        await broker.put_topic("orders", {"type": "queue", "durability": "fsync", "lease_ms": 86_400_000})
        await broker.put_router("copy", source="orders", dest="audit")
        for number in range(5):
            await broker.produce("orders", [b'{"order":%d}' % number] * 10)
        claim = await broker.claim("orders", node="worker", max_count=5)
        await broker.ack("orders", node="worker", seqs=claim.seqs[:2])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A sound data directory: 48 jobs left of 50, 3 of them in flight, and a log of copies."""
    directory = tmp_path / "data"
    asyncio.run(_fill(directory))
    return directory


@pytest.fixture
def damaged(data: Path) -> Path:
    """The same with one bit flipped in a produce, far before the end."""
    segment = data / "segments" / "0000000001.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b'{"order":3}')] ^= 1
    segment.write_bytes(content)
    return data
