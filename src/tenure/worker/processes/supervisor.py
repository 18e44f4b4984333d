"""`Supervisor`: run several worker processes, forward signals to them, and restart one that dies.

    a worker ends by itself        it is restarted, after a back-off that doubles until it lasts for `restart_max_ms`
    it refuses before any lasted   all are stopped with its exit code: a wrong argument is wrong every time
    SIGTERM, SIGINT                all drain, and none is started again
    again                          they give their jobs back at once; those that do not end soon are killed
    a third time                   all are killed

Each worker runs in a session of its own, so that Ctrl-C reaches it once, through the supervisor. A worker whose
supervisor is killed gets a SIGTERM from the kernel, and drains.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from tenure.backoff import backoff_ms
from tenure.contract.values import check_within
from tenure.worker.runtime.timing import SystemTiming, Timing, end, unless, within
from tenure.worker.settings import WorkerSettings

__all__ = ["PROCESSES_MAX", "Started", "Supervisor", "follow_supervisor", "run_supervised"]

log = logging.getLogger("tenure.worker")

PROCESSES_MAX: Final = 256
_SUPERVISOR: Final = "TENURE_WORKER_SUPERVISOR"
_PR_SET_PDEATHSIG: Final = 1
_REFUSALS: Final = frozenset({1, 2, 6})
"""Exit codes that a restart does not change: the module fails, wrong usage, permission denied."""
_FAILED: Final = 1
_NOT_STARTED: Final = 3


class Started(Protocol):
    """A worker process."""

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...


class Supervisor:
    """Keeps ``count`` workers running until `stop`; ``start`` starts the worker of an index."""

    def __init__(
        self,
        start: Callable[[int], Awaitable[Started]],
        count: int,
        *,
        timing: Timing | None = None,
        settings: WorkerSettings | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_within(count, "processes", least=1, most=PROCESSES_MAX)
        self._start = start
        self._count = count
        self._timing = timing or SystemTiming()
        self._settings = settings or WorkerSettings()
        self._chance = chance
        self._alive: dict[int, Started] = {}
        self._codes: dict[int, int] = {}
        self._began_ms: dict[int, int] = {}
        self._longest_ms = 0
        self._refusal: int | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Let all workers drain and end; a second call ends them at once; a third kills them."""
        number = signal.SIGKILL if self._hurry.is_set() else signal.SIGTERM
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        self._signal(number)

    async def run(self) -> int:
        """Keep the workers running until `stop`, and return the exit code: 0 where all of them ended well."""
        keeping = [asyncio.create_task(self._keep(index)) for index in range(self._count)]
        killing = asyncio.create_task(self._kill_in_time())
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in (*keeping, killing):
                await end(task)
        if self._refusal is not None:
            return self._refusal
        return _FAILED if any(self._codes.values()) else 0

    async def _keep(self, index: int) -> None:
        """Keep one worker running: start it, and restart it after it ended."""
        failures = 0
        while not self._stopping.is_set():
            began_ms = self._timing.now_ms()
            code = await self._run_once(index)
            lasted = self._timing.now_ms() - began_ms >= self._settings.restart_max_ms
            if self._stopping.is_set():
                break
            if code in _REFUSALS and not lasted and not self._any_has_lasted():
                log.error("worker %d cannot start (exit code %d): all are stopped", index, code)
                self._refusal = code
                self.stop()
                break
            failures = 0 if lasted else failures + 1
            wait_ms = self._wait_ms(failures)
            log.warning("worker %d %s: it starts again in %d ms", index, _describe_exit(code), wait_ms)
            await unless(self._stopping, self._timing.sleep_ms(wait_ms))

    async def _run_once(self, index: int) -> int:
        """Start a worker, wait for its end and return its exit code; a failed start counts as an exit code too."""
        try:
            process = await self._start(index)
        except OSError as error:
            log.error("worker %d cannot be started: %s", index, error)
            self._codes[index] = _NOT_STARTED
            return _NOT_STARTED
        self._alive[index] = process
        self._began_ms.setdefault(index, self._timing.now_ms())
        if self._stopping.is_set():
            process.send_signal(signal.SIGTERM)
        try:
            code = await process.wait()
        finally:
            del self._alive[index]
            lived_ms = self._timing.now_ms() - self._began_ms.pop(index)
            self._longest_ms = max(self._longest_ms, lived_ms)
        # A worker that got SIGTERM before it could handle it has done nothing.
        is_unborn = self._stopping.is_set() and code == -signal.SIGTERM
        self._codes[index] = 0 if is_unborn else code
        return code

    def _any_has_lasted(self) -> bool:
        """Return whether a worker has run for `restart_max_ms`, so that the command itself must be valid."""
        now_ms = self._timing.now_ms()
        longest_ms = max((now_ms - began_ms for began_ms in self._began_ms.values()), default=0)
        return max(longest_ms, self._longest_ms) >= self._settings.restart_max_ms

    def _wait_ms(self, failures: int) -> int:
        min_ms, max_ms = self._settings.restart_min_ms, self._settings.restart_max_ms
        return int(backoff_ms(failures, min_ms=min_ms, max_ms=max_ms, chance=self._chance))

    async def _kill_in_time(self) -> None:
        """Kill workers that have not ended after the limits of their drain have passed."""
        settings = self._settings
        await self._stopping.wait()
        leave_ms = settings.cancel_ms + settings.flush_ms
        with suppress(TimeoutError):
            await within(self._timing, settings.drain_ms + settings.shutdown_ms + 3 * leave_ms, self._hurry.wait())
            await self._timing.sleep_ms(leave_ms)
        for index in self._alive:
            log.error("worker %d did not end: it is killed", index)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._alive.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)


def run_supervised(command: Sequence[str], count: int, *, drain_ms: int) -> int:
    """Run ``count`` workers by one command, which is arguments of Python, until SIGTERM or SIGINT; returns the exit
    code. Each worker gets its index from `follow_supervisor`. ``drain_ms`` is how long the workers drain.
    """
    settings = msgspec.structs.replace(WorkerSettings(), drain_ms=drain_ms)

    async def start(index: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, _SUPERVISOR: f"{os.getpid()}:{index}"},
            start_new_session=True,
        )

    async def supervise() -> int:
        supervisor = Supervisor(start, count, settings=settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        return await supervisor.run()

    return asyncio.run(supervise())


def follow_supervisor() -> int | None:
    """Return the index of this worker under its supervisor, and have the kernel send it a SIGTERM once the supervisor
    is gone; None where it has no supervisor.
    """
    place = os.environ.pop(_SUPERVISOR, None)
    if place is None:
        return None
    supervisor, _, index = place.partition(":")
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(supervisor):
        sys.exit(_FAILED)
    return int(index)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
