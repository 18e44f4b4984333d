"""A server and a worker whose processes die, with a supervisor like systemd that starts the worker again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from tests.acceptance.deaths.app import Line
from tests.acceptance.worker.working import FixedServing
from tests.cluster.cluster import Cluster, cluster_on_files
from tests.kit.restartable_server import until

__all__ = ["TRIES_MAX", "Fleet", "Members", "Server", "Systemd", "fleet", "fleet_of_members"]

ROOT = Path(__file__).parents[3]
TRIES_MAX = 5
"""The max_deliveries that an app gives its queues by default."""


class Systemd:
    """Starts `tenure worker` again whenever it ends, until it is told to stop."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._command = [str(Path(sys.executable).with_name("tenure")), "worker", *arguments]
        self._environment = environment
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._ending = threading.Event()
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _keep(self) -> None:
        while not self._ending.is_set():
            environment = {**self._environment, "DEATHS_RUN": uuid.uuid4().hex}
            self.process = subprocess.Popen(self._command, cwd=ROOT, env=environment, stderr=self._log)
            self.starts += 1
            if self._ending.is_set():
                self.process.terminate()
            self.process.wait()
            self._ending.wait(0.1)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Deploy: end the worker in order, and have it started again."""
        starts = self.starts
        assert self.process is not None
        self.process.send_signal(number)
        until(lambda: self.starts > starts, "it is started again", within_s=90)

    def stop(self) -> None:
        """End it for good, at once."""
        self._ending.set()
        for _ in range(2):
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
        with suppress(subprocess.TimeoutExpired):
            assert self.process is not None
            self.process.wait(20)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        self._thread.join(30)

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def close(self) -> None:
        """Forget its log."""
        self._log.close()


class Server(Protocol):
    """The broker of a fleet, at an address that outlives its processes."""

    address: str

    def check_alive(self) -> None: ...

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response: ...

    def start(self) -> object: ...

    def lose(self) -> None: ...

    def close(self) -> None: ...


class Alone(FixedServing):
    """One server with a directory of its own."""

    def check_alive(self) -> None:
        """Raise AssertionError where it ended by itself."""
        assert self.process.poll() is None, f"the server ended: {self.log()[-3_000:]}"

    def lose(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()


class Members:
    """Two servers that share a home: the one that leads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.address = cluster.url

    def check_alive(self) -> None:
        self._cluster.check_alive()

    def start(self) -> None:
        self._cluster.start()

    def lose(self) -> None:
        """Kill the leader, and go on once the other member leads and the lost one follows."""
        self._cluster.wait_for_standbys(count=1)
        leader, epoch = self._cluster.wait_for_leader()
        leader.down()
        self._cluster.wait_for_leader(epoch_min=epoch + 1)
        leader.up()

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self._cluster.wait_for_leader()[0].call(method, path, body)

    def close(self) -> None:
        """The cluster is closed by its maker."""


class Fleet:
    """A server, its workers and the journal of what their handlers did."""

    def __init__(self, directory: Path, server: Server, **environment: str) -> None:
        self.server = server
        self.journal = directory / "journal"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")} | {
            "DEATHS_URL": self.server.address,
            "DEATHS_JOURNAL": str(self.journal),
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            **environment,
        }
        self.workers: list[Systemd] = []

    def worker(self, *arguments: str, **environment: str) -> Systemd:
        """Start a worker with these arguments of `tenure worker`."""
        made = Systemd(["tests.acceptance.deaths.app:app", *arguments], self._environment | environment)
        self.workers.append(made)
        return made

    def declare(self, *queues: str, tries_max: int = TRIES_MAX) -> None:
        """Create queues as an app does."""
        for queue in queues:
            config = {
                "type": "queue",
                "durability": "fsync",
                "max_deliveries": tries_max,
                "dead_letter": f"{queue}.dead",
            }
            self.ok("PUT", f"/v0/topics/{queue}", config)

    def put(self, queue: str, orders: list[dict[str, Any]]) -> None:
        for at in range(0, len(orders), 500):
            records = [{"data": order} for order in orders[at : at + 500]]
            self.ok("POST", f"/v0/topics/{queue}", {"records": records, "create": False})

    @property
    def port(self) -> int:
        """The port of a server that is alone."""
        return int(self.server.address.rpartition(":")[2])

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """A request that must succeed; return the body of its answer."""
        answer = self.server.call(method, path, body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def queue(self, name: str) -> dict[str, int]:
        """The counters of a queue."""
        counters: dict[str, int] = self.ok("GET", f"/v0/topics/{name}?touch=false")["queue"]
        return counters

    def is_done(self, name: str) -> bool:
        """Whether no job is left of a queue."""
        counters = self.queue(name)
        return not (counters["ready"] or counters["in_flight"] or counters["delayed"])

    def lines(self, event: str | None = None, *, kills: bool | None = None) -> list[Line]:
        if not self.journal.exists():
            return []
        whole = self.journal.read_bytes().rpartition(b"\n")[0]
        lines = [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
        return [line for line in lines if event in (None, line.event) and kills in (None, line.kills)]

    def ended(self) -> Counter[int]:
        """How often each healthy job came to its end."""
        return Counter(line.n for line in self.lines("end", kills=False))

    def letters(self, queue: str) -> list[Any]:
        """The dead letters of a queue."""
        answer = self.server.call("POST", f"/v0/topics/{queue}.dead/diff", {"limit": 1000})
        return list(answer.json()["records"]) if answer.status_code == 200 else []

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
            worker.close()
        self.server.close()


@contextmanager
def fleet(directory: Path, *, settings: dict[str, Any] | None = None, **environment: str) -> Iterator[Fleet]:
    """A running server without a worker."""
    with _running(Fleet(directory, Alone(directory / "data", settings=settings or {}), **environment)) as made:
        yield made


@contextmanager
def fleet_of_members(directory: Path, *, settings: dict[str, Any], **environment: str) -> Iterator[Fleet]:
    """Two servers that share a home, without a worker."""
    with (
        cluster_on_files(directory, members=2, **settings) as cluster,
        _running(Fleet(directory, Members(cluster), **environment)) as made,
    ):
        yield made


@contextmanager
def _running(made: Fleet) -> Iterator[Fleet]:
    try:
        made.server.start()
        yield made
    finally:
        made.close()
