"""Real workers beside real servers: started, signalled, stopped and killed by their ids, and read from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.kit.ports import free_port
from tests.kit.restartable_server import PATIENCE_S, Serving, until

__all__ = ["FixedServing", "Journal", "Line", "Work", "Working", "free_port", "until"]

ROOT = Path(__file__).parents[3]


class Line(msgspec.Struct, frozen=True):
    """What a handler wrote down."""

    event: str
    queue: str
    n: int
    seq: int
    deliveries: int
    pid: int
    at: float
    lost: bool | None = None


class Journal:
    """Everything that handlers of all workers wrote down, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str | None = None, *, n: int | None = None) -> list[Line]:
        if not self.path.exists():
            return []
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        lines = [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
        return [line for line in lines if event in (None, line.event) and n in (None, line.n)]

    def wait_for(self, event: str, *, n: int | None = None, count: int = 1) -> list[Line]:
        """The lines of that kind, once there are so many."""
        until(lambda: len(self.lines(event, n=n)) >= count, f"{count} x {event} of {n}; there is {self.lines()[-20:]}")
        return self.lines(event, n=n)


class FixedServing(Serving):
    """A server that comes back at the same address."""

    def __init__(self, home: Path, **options: Any) -> None:
        super().__init__(home, **options)
        self.fixed_port = free_port()
        self.address = f"http://127.0.0.1:{self.fixed_port}"

    def spawn(self) -> Serving:
        assert self._process is None or self._process.poll() is not None, "it still runs"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        program, port = Path(sys.executable).with_name("tenure"), str(self.fixed_port)
        self._process = subprocess.Popen(
            [program, "serve", "--data", self.home, "--port", port, *self._flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        return self

    def put(self, queue: str, *orders: dict[str, Any]) -> None:
        """Put jobs for the handlers of `jobs`."""
        self.ok("POST", f"/v0/topics/{queue}", {"records": [{"data": order} for order in orders], "create": False})

    def counts(self, queue: str) -> tuple[int, int]:
        """Ready and in flight."""
        counters = self.queue(queue)
        return counters["ready"], counters["in_flight"]

    def letters(self, queue: str, *, count: int) -> list[Any]:
        """The dead letters of a queue, once so many are durable."""
        found: list[Any] = []

        def look() -> bool:
            answer = self.call("POST", f"/v0/topics/{queue}.dead/diff", {})
            found[:] = answer.json()["records"] if answer.status_code == 200 else []
            return len(found) >= count

        until(look, f"{count} dead letters of {queue}")
        return found

    def is_done(self, queue: str) -> bool:
        counters = self.queue(queue)
        return not (counters["ready"] or counters["in_flight"] or counters["delayed"])


class Working:
    """One worker process. ``options`` go to `run_app`, ``knobs`` by queue to its tasks; its children cannot be started
    before ``child_gate`` is open, where it is given.
    """

    def __init__(
        self, url: str, journal: Path, *, knobs: dict[str, Any] | None = None, child_gate: str = "", **options: Any
    ) -> None:
        self.url = url
        self._options = options
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENURE_")},
            "WORK_URL": url,
            "WORK_JOURNAL": str(journal),
            "WORK_KNOBS": json.dumps(knobs or {}),
            "WORK_CHILD_GATE": child_gate,
            "PYTHONPATH": str(ROOT),
        }
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.worker.process", json.dumps(options)],
            stderr=self._log,
            cwd=ROOT,
            env=self._environment,
        )

    def wait_until_it_works(self, *queues: str) -> Working:
        """Until the broker feeds it."""
        wanted = queues or self._options.get("queues") or ["loop"]
        until(lambda: all(f"working at {queue}" in self.log() for queue in wanted), f"it works:\n{self.log()}")
        return self

    def wait_for_log(self, part: str) -> None:
        until(lambda: part in self.log(), f"the log says {part!r}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """End it if it still runs, and hold it to having met no fault of its own."""
        if self.process.poll() is None:
            self.kill()
        log = self.log()
        self._log.close()
        assert "could not be handled" not in log, log
        assert "never retrieved" not in log, log

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def cpu_s(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Work:
    """A server, its workers, their journal, and gates that let handlers go on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = Journal(directory / "journal")
        self.server = FixedServing(directory / "data")
        self.workers: list[Working] = []

    def worker(
        self, *, wait: bool = True, queues: tuple[str, ...] = ("loop",), url: str = "", **options: Any
    ) -> Working:
        """Start a worker at the given queues, or behind something else at ``url``."""
        made = Working(url or self.server.address, self.journal.path, queues=list(queues), **options)
        self.workers.append(made)
        return made.wait_until_it_works() if wait else made

    def gate(self, name: str = "gate") -> str:
        """The path of a gate, closed."""
        return str(self.directory / name)

    def open(self, name: str = "gate") -> None:
        """Let the handlers that wait at it go on."""
        (self.directory / name).touch()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.server.close()


def works(directory: Path) -> Iterator[Work]:
    """What the fixture is made of."""
    made = Work(directory)
    try:
        yield made
    finally:
        made.close()


def watch(condition: Callable[[], bool], for_s: float) -> bool:
    """Whether something held all the time that it was looked at."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        if not condition():
            return False
        time.sleep(0.01)
    return True
