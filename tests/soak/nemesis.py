"""`Nemesis`: does to a server, its disk, its clock and its network what a schedule says, one thing after the other.

The schedule comes from a seed alone. Every fault heals before the next, and then the server must become ready.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import httpx

from tests.kit.http_proxy import Proxy
from tests.kit.restartable_server import Serving, until
from tests.soak.clock import set_shift
from tests.soak.journal import Journal

__all__ = ["FAULTS", "Fault", "Nemesis", "schedule"]

_HOUR_MS: Final = 3_600_000
_FILL_BYTES: Final = (1 << 20, 1 << 12)
FAULTS: Final = {
    "kill": 4,
    "kill_twice": 1,
    "restart": 2,
    "pause": 3,
    "full_disk": 2,
    "full_disk_and_kill": 2,
    "full_disk_and_restart": 1,
    "clock": 3,
    "cut": 3,
    "stall": 2,
    "lose_answers": 3,
    "lose_requests": 1,
}
"""The faults, and how often each is drawn beside the others."""
_LASTING: Final = frozenset(
    {"kill", "kill_twice", "pause", "full_disk", "full_disk_and_kill", "full_disk_and_restart", "stall"}
)
"""Those that take a time of their own; the others are over at once, or leave something behind."""


class Fault(NamedTuple):
    """One entry of a schedule: after ``wait_s`` of peace, ``what`` goes on for ``for_s``; ``amount`` is its own."""

    what: str
    wait_s: float
    for_s: float
    amount: int

    def __str__(self) -> str:
        return f"{self.wait_s:.2f} s, then {self.what} for {self.for_s:.2f} s ({self.amount})"


def schedule(seed: int, *, seconds: float, without: tuple[str, ...] = ()) -> list[Fault]:
    """Return the faults of a seed that fit into a time: each kind once, in any order, then by their weights.

    The first of a longer schedule are those of a shorter one.
    """
    random, faults, total_s = Random(f"nemesis {seed}"), list[Fault](), 0.0
    names = list(FAULTS)
    first = random.sample(names, len(names))
    while True:
        what = first.pop() if first else random.choices(names, weights=[FAULTS[name] for name in names])[0]
        wait_s, for_s, amount = random.uniform(0.1, 0.7), random.uniform(0.1, 2.5), random.randrange(-1_000, 1_000)
        fault = Fault(what, wait_s, for_s if what in _LASTING else 0.0, amount)
        total_s += fault.wait_s + fault.for_s
        if total_s > seconds and faults:
            return faults
        if what not in without:
            faults.append(fault)


class Nemesis:
    """The victim: a server behind a proxy, its disk (None where it cannot be filled) and the file of its clock."""

    def __init__(self, server: Serving, proxy: Proxy, journal: Journal, *, disk: Path | None, shift_file: Path) -> None:
        self._server, self._proxy, self._journal = server, proxy, journal
        self._disk, self._shift_file = disk, shift_file
        self.done: list[tuple[int, str]] = []

    def strike(self, fault: Fault) -> None:
        """Wait, do it, heal it, and see that the server is ready. Raises AssertionError where it is not."""
        time.sleep(fault.wait_s)
        self._say(str(fault))
        strike: Callable[[Fault], None] = getattr(self, f"_{fault.what}")
        strike(fault)
        until(self._is_ready, f"ready after {fault.what}")
        self._say("healed")

    def _say(self, what: str) -> None:
        self.done.append((self._journal.now_ms(), what))

    def _is_ready(self) -> bool:
        assert self._server.process.poll() is None, f"the server ended by itself:\n{self._server.log()}"
        with suppress(httpx.TransportError):
            return self._server.call("GET", "/v0/ready").status_code == 200
        return False

    def _start(self) -> None:
        self._server.start()
        self._proxy.target_port = self._server.port

    # Processes

    def _kill(self, fault: Fault) -> None:
        self._server.kill()
        time.sleep(fault.for_s / 4)
        self._start()

    def _kill_twice(self, fault: Fault) -> None:
        """Kill it again while it starts."""
        self._server.kill()
        self._server.spawn()
        time.sleep(fault.for_s / 4)
        self._server.kill()
        self._start()

    def _restart(self, fault: Fault) -> None:
        code = self._server.terminate()
        assert code == 0, f"a clean stop ended with {code}:\n{self._server.log()}"
        self._start()

    def _pause(self, fault: Fault) -> None:
        self._server.signal(signal.SIGSTOP)
        time.sleep(fault.for_s)
        self._server.signal(signal.SIGCONT)

    # Disk and clock

    def _full_disk(self, fault: Fault) -> None:
        self._fill()
        time.sleep(fault.for_s)
        self._ballast.unlink()

    def _full_disk_and_kill(self, fault: Fault) -> None:
        self._fill()
        time.sleep(fault.for_s)
        self._kill(fault)
        until(self._is_ready, "ready on a full disk")
        self._ballast.unlink()

    def _full_disk_and_restart(self, fault: Fault) -> None:
        self._fill()
        time.sleep(fault.for_s)
        self._restart(fault)
        until(self._is_ready, "ready on a full disk")
        self._ballast.unlink()

    @property
    def _ballast(self) -> Path:
        assert self._disk is not None
        return self._disk / "ballast"

    def _fill(self) -> None:
        """Write until nothing more fits, in large and then in small steps."""
        for size_bytes in _FILL_BYTES:
            with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
                while file.write(bytes(size_bytes)) == size_bytes:
                    pass

    def _clock(self, fault: Fault) -> None:
        """Set the wall to another hour, before or after this one, and leave it there."""
        shift_ms = fault.amount * _HOUR_MS
        self._journal.shifts.append(shift_ms)
        set_shift(self._shift_file, shift_ms)

    # Network

    def _cut(self, fault: Fault) -> None:
        self._proxy.cut()

    def _stall(self, fault: Fault) -> None:
        self._proxy.stall()
        time.sleep(fault.for_s)
        self._proxy.resume()

    def _lose_answers(self, fault: Fault) -> None:
        self._proxy.lose_answers += fault.amount % 20 + 1

    def _lose_requests(self, fault: Fault) -> None:
        self._proxy.lose_requests += fault.amount % 20 + 1
