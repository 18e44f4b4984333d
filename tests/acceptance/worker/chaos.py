"""A fleet of `tenure worker` processes at one broker, and everything that is done to them while jobs flow.

Nothing here waits for time to pass: a fault comes when so many jobs were handled, a stopped worker goes on when the
broker has taken its leases away, and the flow ends when the queues are empty.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol

import httpx
import msgspec

from tenure import Client
from tenure.client.settings import ClientSettings
from tests.acceptance.worker.working import ROOT, FixedServing
from tests.kit.processes import children_of
from tests.kit.restartable_server import PATIENCE_S, until

__all__ = ["LEASE_MS", "QUEUES", "Fleet", "Flow", "Noted"]

LEASE_MS = 2_000
QUEUES = ("loop", "thread")
MIB_MAX = 1_500
BATCH = 50
_FATAL = ("could not be handled", "never retrieved", "Traceback")


class Noted(msgspec.Struct, frozen=True):
    """A line that a handler wrote."""

    event: str
    id: str
    queue: str
    seq: int
    lease: str
    node: str
    pid: int
    deliveries: int
    at: float
    taken: bool | None = None
    lost: bool | None = None


class Worker:
    """One `tenure worker`. ``fate`` says what is being done to it, and ``past`` all that was."""

    def __init__(self, node: str, url: str, home: Path, *, lease_ms: int = LEASE_MS) -> None:
        self.node = node
        self.fate = "left alone"
        self.past: list[str] = []
        self.is_gone = False
        self.journal = home / f"{node}.journal"
        self.log = home / f"{node}.log"
        self._read_bytes = 0
        self.aborts = 0
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
        environment |= {"CHAOS_URL": url, "CHAOS_NODE": node, "CHAOS_HOME": str(home)}
        environment |= {"CHAOS_LEASE_MS": str(lease_ms), "CHAOS_MIB_MAX": str(MIB_MAX)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("tenure"), "worker", "tests.acceptance.worker.chaos_app:app"],
                stderr=log,
                cwd=ROOT,
                env=environment,
            )

    @property
    def works(self) -> bool:
        """Whether it may be chosen for a fault: nothing else is being done to it, and it has begun to work."""
        return self.fate == "left alone" and self.process.poll() is None and self._read_bytes > 0

    @property
    def listens(self) -> bool:
        """Whether it takes signals: before that, SIGTERM ends it as any process."""
        return "working at thread" in self.log.read_text()

    def signal(self, number: signal.Signals, fate: str) -> None:
        """Send a signal to the supervisor, or to all processes where it is none that the supervisor passes on."""
        self.fate = fate
        if number != signal.SIGTERM:
            for pid in children_of(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            self.process.send_signal(number)

    def kill(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL, "killed")
        self.process.wait(PATIENCE_S)

    def new_aborts(self) -> int:
        """How many more of its processes ran out of memory since the last look."""
        before, self.aborts = self.aborts, self.log.read_text().count("was ended by SIGABRT")
        return self.aborts - before

    @property
    def story(self) -> str:
        """Everything that was done to it."""
        return ", then ".join([*self.past, self.fate])

    def read(self) -> list[Noted]:
        """What its handlers wrote since the last look."""
        if not self.journal.exists():
            return []
        with self.journal.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole) + bool(whole)
        return [msgspec.json.decode(line, type=Noted) for line in whole.splitlines()]


class Served(Protocol):
    """The broker as a fleet sees it: one server, or whichever of several leads."""

    home: Path
    address: str

    def start(self) -> object: ...

    def kill(self) -> None: ...

    def ok(self, method: str, path: str) -> Any: ...

    def call(self, method: str, path: str) -> httpx.Response: ...

    def queue(self, name: str) -> dict[str, int]: ...

    def is_done(self, queue: str) -> bool: ...

    def terminate(self) -> int: ...

    def close(self) -> None: ...


class Fleet:
    """The workers, the broker, and what the handlers wrote so far."""

    def __init__(self, home: Path, random: Random, *, server: Served | None = None, lease_ms: int = LEASE_MS) -> None:
        self.home = home
        self.random = random
        self.server: Served = server or FixedServing(home / "data")
        self.lease_ms = lease_ms
        self.workers: list[Worker] = []
        self.noted: list[Noted] = []
        self.ended: set[str] = set()
        self.done: Counter[str] = Counter()

    def start(self, count: int) -> None:
        self.server.start()
        for _ in range(count):
            self.hire()

    def hire(self) -> None:
        self.workers.append(Worker(f"w{len(self.workers) + 1}", self.server.address, self.home, lease_ms=self.lease_ms))

    def holds(self, worker: Worker) -> int:
        """How many live leases the broker counts for a worker."""
        count = 0
        for queue in QUEUES:
            leases = self.server.ok("GET", f"/v0/topics/{queue}/leases?limit=1000")["leases"]
            count += sum(lease["node"].partition("-")[0] == worker.node for lease in leases)
        return count

    # What happens to them

    def kill_a_worker(self) -> None:
        """SIGKILL, whatever it is at."""
        self._chosen().signal(signal.SIGKILL, "killed")
        self._count("killed")

    def stop_a_worker(self) -> None:
        """SIGSTOP while it holds something; `tend` lets it go on once it holds nothing any more."""
        self.until(self._stopped, "a worker that holds jobs was stopped")
        self.done["stopped past its lease"] += 1

    def _stopped(self) -> bool:
        worker = self._chosen()
        worker.signal(signal.SIGSTOP, "stopped")
        if self.holds(worker):
            return True
        worker.signal(signal.SIGCONT, "left alone")
        return False

    def drain_a_worker(self) -> None:
        """SIGTERM, and another takes its place."""
        self._chosen().signal(signal.SIGTERM, "drained")
        self._count("drained")

    def kill_the_broker(self) -> None:
        """SIGKILL, and start it again on the same data at the same port."""
        self.server.kill()
        self.server.start()
        until(lambda: self.server.call("GET", "/v0/ready").status_code == 200, "it has read its log")
        self.done["broker killed"] += 1

    def _chosen(self) -> Worker:
        self.until(lambda: any(worker.works for worker in self.workers), "some worker works")
        return self.random.choice([worker for worker in self.workers if worker.works])

    def _count(self, what: str) -> None:
        self.done[what] += 1
        self.hire()

    # Looking after them

    def tend(self) -> None:
        """Read what was written, let stopped workers go on, and count those that ran out of memory."""
        for worker in self.workers:
            lines = worker.read()
            self.noted += lines
            self.ended.update(line.id for line in lines if line.event == "end")
            if worker.fate == "stopped" and not self.holds(worker):
                worker.signal(signal.SIGCONT, "left alone")
                worker.past.append("stopped")
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        aborts = worker.new_aborts()
        if aborts:
            worker.past.append("out of memory")
            self.done["out of memory"] += aborts
        code = worker.process.poll()
        if code is None or worker.is_gone:
            return
        worker.is_gone = True
        expected = -signal.SIGKILL if worker.fate == "killed" else 0
        assert code == expected, f"{worker.node} ({worker.fate}) ended with {code}:\n{worker.log.read_text()}"

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Tend the fleet until something holds; gives up only when no job has ended for long."""
        ended, end = len(self.ended), time.monotonic() + PATIENCE_S
        while not condition():
            self.tend()
            if len(self.ended) > ended:
                ended, end = len(self.ended), time.monotonic() + PATIENCE_S
            assert time.monotonic() < end, f"never happened: {what}; {len(self.ended)} ended, {self._state()}"
            time.sleep(0.01)

    def until_ended(self, count: int) -> None:
        """Until so many jobs were handled."""
        self.until(lambda: len(self.ended) >= count, f"{count} jobs end")

    def _state(self) -> str:
        fates = ", ".join(f"{worker.node} {worker.story} ({worker.process.poll()})" for worker in self.workers)
        counters = {queue: self.server.queue(queue) for queue in QUEUES}
        return f"{fates}; {counters}; the last says:\n{self.workers[-1].log.read_text()[-2_000:]}"

    def empty(self) -> bool:
        return all(self.server.is_done(queue) for queue in QUEUES)

    def end(self) -> None:
        """Drain those that are left, end the broker, and hold all of them to having met no fault of their own."""
        self.until(lambda: all(worker.fate != "stopped" for worker in self.workers), "the stopped ones went on")
        self.until(lambda: all(worker.is_gone or worker.listens for worker in self.workers), "the new ones are there")
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.signal(signal.SIGTERM, worker.fate)
        self.until(lambda: all(worker.process.poll() is not None for worker in self.workers), "they end")
        self.tend()
        assert self.server.terminate() == 0
        for worker in self.workers:
            log = worker.log.read_text()
            assert not any(word in log for word in _FATAL), f"{worker.node}:\n{log}"

    def close(self) -> None:
        """Leave nothing behind, however the test ended."""
        for worker in self.workers:
            worker.kill()
        self.server.close()


class Flow:
    """A producer in a thread. It may be ``allowed`` jobs ahead, so that faults and jobs come at one pace."""

    def __init__(self, url: str, orders: list[tuple[str, dict[str, Any]]]) -> None:
        self.sent: list[str] = []
        self.acknowledged: list[str] = []
        self._orders = orders
        self._url = url
        self._allowed = 0
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def allow(self, count: int) -> None:
        with self._more:
            self._allowed = count
            self._more.notify_all()

    def finish(self) -> None:
        """Until everything was acknowledged."""
        self.allow(len(self._orders))
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the producer is done"
        if self._failed is not None:
            raise self._failed

    def abandon(self) -> None:
        """Whatever was not sent is not sent."""
        self._orders = []
        self.finish()

    def _run(self) -> None:
        settings = ClientSettings(attempts_max=1_000, retry_for_ms=int(PATIENCE_S * 1000), backoff_max_ms=500)
        try:
            with Client(self._url, settings=settings) as client:
                while len(self.sent) < len(self._orders):
                    with self._more:
                        self._more.wait_for(lambda: self._allowed > len(self.sent) or not self._orders)
                        batch = self._orders[len(self.sent) : min(len(self.sent) + BATCH, self._allowed)]
                    self._put(client, batch)
        except BaseException as error:
            self._failed = error

    def _put(self, client: Client, batch: list[tuple[str, dict[str, Any]]]) -> None:
        """The client repeats what the broker's death cut off, and its mark keeps it from being there twice."""
        self.sent += [order["id"] for _, order in batch]
        for queue in QUEUES:
            orders = [order for where, order in batch if where == queue]
            if orders:
                produced = client.produce(queue, orders, create=False)
                assert produced.count == len(orders)
                self.acknowledged += [order["id"] for order in orders]
