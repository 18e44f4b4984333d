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
from typing import Any

import msgspec

from tests.acceptance.deaths.app import Line
from tests.acceptance.worker.working import FixedServing
from tests.kit.restartable_server import until

__all__ = ["TRIES_MAX", "Fleet", "Systemd", "fleet"]

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


class Fleet:
    """A server, its workers and the journal of what their handlers did."""

    def __init__(self, directory: Path, *, settings: dict[str, Any], **environment: str) -> None:
        self.server = FixedServing(directory / "data", settings=settings)
        self.journal = directory / "journal"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")} | {
            "DEATHS_URL": self.server.address,
            "DEATHS_JOURNAL": str(self.journal),
            "PYTHONPATH": str(ROOT),
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
            self.server.ok("PUT", f"/v0/topics/{queue}", config)

    def put(self, queue: str, orders: list[dict[str, Any]]) -> None:
        for at in range(0, len(orders), 500):
            self.server.put(queue, *orders[at : at + 500])

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
    made = Fleet(directory, settings=settings or {}, **environment)
    try:
        made.server.start()
        yield made
    finally:
        made.close()
