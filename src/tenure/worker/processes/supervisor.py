"""`Supervisor`: run worker processes, forward signals to them, restart one that dies, and log of which jobs it died.

    it dies while it works         it is restarted at once, so that it reports the death; before it takes jobs, it waits
                                   out a back-off that doubles until it lasts for `restart_max_ms`
    it dies before it works        it is restarted after that back-off
    it refuses before any lasted   all are stopped with its exit code: a wrong argument is wrong every time
    SIGTERM, SIGINT                all drain, and none is started again
    again                          they give their jobs back at once; those that do not end soon are killed
    a third time                   all are killed

While workers report suspects, jobs whose worker was lost, one more process runs for these alone. It ends by itself.
One that refuses to start is given up until workers report suspects again: they get them too, only later.

Each worker runs in a session of its own, so that Ctrl-C reaches it once, through the supervisor. A worker whose
supervisor is killed gets a SIGTERM from the kernel, and drains.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from tenure.backoff import backoff_ms
from tenure.contract.values import check_within
from tenure.worker.processes.board import Board, Record
from tenure.worker.processes.deaths import describe_death
from tenure.worker.processes.place import Place
from tenure.worker.runtime.timing import SystemTiming, Timing, end, unless, within
from tenure.worker.settings import WorkerSettings

__all__ = ["PROCESSES_MAX", "Started", "Supervisor"]

log = logging.getLogger("tenure.worker")

PROCESSES_MAX: Final = 256
_REFUSALS: Final = frozenset({1, 2, 6})
"""Exit codes that a restart does not change: the module fails, wrong usage, permission denied."""
_FAILED: Final = 1
_NOT_STARTED: Final = 3
_NO_FD: Final = -1


class Started(Protocol):
    """A worker process."""

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...


class _Exit(msgspec.Struct, frozen=True):
    """The end of a worker process; ``left`` is what its board showed, None where it was not working."""

    code: int
    left: Record | None
    lasted: bool


class Supervisor:
    """Keeps ``count`` workers running until `stop`; ``start`` starts the worker of a place. ``notices`` is the file
    descriptor on which workers ask for `run_suspects`.
    """

    def __init__(
        self,
        start: Callable[[Place], Awaitable[Started]],
        count: int,
        *,
        notices: int = _NO_FD,
        timing: Timing | None = None,
        settings: WorkerSettings | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_within(count, "processes", least=1, most=PROCESSES_MAX)
        self._start = start
        self._count = count
        self._notices = notices
        self._timing = timing or SystemTiming()
        self._settings = settings or WorkerSettings()
        self._chance = chance
        self._group = secrets.token_hex(8)
        self._boards = [Board.make(f"tenure-worker-{index}") for index in range(count + 1)]
        self._alive: dict[int, Started] = {}
        self._codes: dict[int, int] = {}
        self._began_ms: dict[int, int] = {}
        self._longest_ms = 0
        self._refusal: int | None = None
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._suspected = asyncio.Event()
        self._suspected_ms = 0

    def stop(self) -> None:
        """Let all workers drain and end; a second call ends them at once; a third kills them."""
        number = signal.SIGKILL if self._hurry.is_set() else signal.SIGTERM
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()
        self._signal(number)

    def run_suspects(self) -> None:
        """Run one more process, for suspects, unless it runs already. It ends by itself once there are none."""
        self._suspected_ms = self._timing.now_ms()
        self._suspected.set()

    async def run(self) -> int:
        """Keep the workers running until `stop`, and return the exit code: 0 where all of them ended well."""
        keeping = [asyncio.create_task(self._keep(index)) for index in range(self._count)]
        keeping.append(asyncio.create_task(self._keep_suspects(self._count)))
        killing = asyncio.create_task(self._kill_in_time())
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in (*keeping, killing):
                await end(task)
            for board in self._boards:
                board.close()
        if self._refusal is not None:
            return self._refusal
        return _FAILED if any(self._codes.values()) else 0

    # One worker

    async def _keep(self, index: int) -> None:
        """Keep one worker running: start it, and restart it after it ended."""
        failures = hold_ms = 0
        while not self._stopping.is_set():
            ended = await self._run_once(index, hold_ms=hold_ms)
            if self._stopping.is_set():
                self._note_death_in_drain(index, ended)
                break
            if self._is_refusal(ended):
                self._refuse(index, ended.code)
                break
            failures = 0 if ended.lasted else failures + 1
            hold_ms = await self._pause(index, ended, self._wait_ms(failures, self._settings.restart_max_ms))

    async def _keep_suspects(self, index: int) -> None:
        """Run a process for suspects while workers report any; restart it as the others, only sooner, because what it
        runs is what kills.
        """
        failures = hold_ms = 0
        while await unless(self._stopping, self._suspected.wait()):
            if self._stopping.is_set():
                break
            ended = await self._run_once(index, hold_ms=hold_ms, on_demand=True)
            if self._stopping.is_set():
                self._note_death_in_drain(index, ended)
                break
            is_asked = self._timing.now_ms() - self._suspected_ms < self._settings.suspects_idle_ms
            if ended.code == 0:
                log.info("worker %d has no suspects left to run", index)
                failures = hold_ms = 0
                if not is_asked:  # else suspects came while it was about to end
                    self._suspected.clear()
            elif ended.left is None and ended.code in _REFUSALS and not is_asked:
                log.warning("worker %d %s: the others take its suspects", index, describe_death(ended.code, None))
                failures = hold_ms = 0
                self._suspected.clear()
            else:
                failures = 0 if ended.lasted else failures + 1
                wait_ms = self._wait_ms(failures, self._settings.suspects_restart_max_ms)
                hold_ms = await self._pause(index, ended, wait_ms)

    async def _pause(self, index: int, ended: _Exit, wait_ms: int) -> int:
        """Log the death, and return how long the successor waits before it takes jobs. One that did not come to work
        has nothing to report, and is waited for here.
        """
        how = describe_death(ended.code, ended.left)
        if ended.left is not None:
            log.warning("worker %d %s: it starts again, and takes jobs in %d ms", index, how, wait_ms)
            return wait_ms
        log.warning("worker %d %s: it starts again in %d ms", index, how, wait_ms)
        await unless(self._stopping, self._timing.sleep_ms(wait_ms))
        return 0

    async def _run_once(self, index: int, *, hold_ms: int, on_demand: bool = False) -> _Exit:
        """Start a worker and wait for its end; a failed start counts as an exit code too."""
        began_ms = self._timing.now_ms()
        code = await self._exit_code(index, self._place(index, hold_ms, on_demand))
        lasted_ms = self._timing.now_ms() - began_ms - hold_ms
        return _Exit(code, self._boards[index].bury(code), lasted_ms >= self._settings.restart_max_ms)

    def _place(self, index: int, hold_ms: int, on_demand: bool) -> Place:
        return Place(
            supervisor=os.getpid(),
            index=index,
            group=self._group,
            board=self._boards[index].fd,
            notices=self._notices,
            hold_ms=hold_ms,
            on_demand=on_demand,
        )

    async def _exit_code(self, index: int, place: Place) -> int:
        try:
            process = await self._start(place)
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

    def _wait_ms(self, failures: int, max_ms: int) -> int:
        return int(backoff_ms(failures, min_ms=self._settings.restart_min_ms, max_ms=max_ms, chance=self._chance))

    # Ends

    def _is_refusal(self, ended: _Exit) -> bool:
        """Return whether a restart would end in the same way. A process that worked had a valid command."""
        is_first = ended.left is None and not ended.lasted and not self._any_has_lasted()
        return ended.code in _REFUSALS and is_first

    def _refuse(self, index: int, code: int) -> None:
        if self._count > 1:  # a process that is alone has said itself why
            log.error("worker %d cannot start (exit code %d): all are stopped", index, code)
        self._refusal = code
        self.stop()

    def _note_death_in_drain(self, index: int, ended: _Exit) -> None:
        if ended.left is not None and ended.code:
            log.warning("worker %d %s", index, describe_death(ended.code, ended.left))

    def _any_has_lasted(self) -> bool:
        """Return whether a worker has run for `restart_max_ms`, so that the command itself must be valid."""
        now_ms = self._timing.now_ms()
        longest_ms = max((now_ms - began_ms for began_ms in self._began_ms.values()), default=0)
        return max(longest_ms, self._longest_ms) >= self._settings.restart_max_ms

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
