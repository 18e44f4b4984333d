"""`Children`: a pool of child processes for CPU-bound handlers, each with one job, each replaced when it ends.

A child that dies of a segfault, out of memory or by a kill fails its own job and no other: a job that it received and
did not begin goes to another child. A child whose job was lost or ran too long is killed, which is the only way to stop
its handler. While no child can be started, jobs that wait for one are given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from tenure.backoff import backoff_ms
from tenure.errors import LeaseLost
from tenure.worker.context import Context
from tenure.worker.processes.frames import Answer, Ask, Begun, Done, Ready, Run
from tenure.worker.processes.process import Child, ChildDied
from tenure.worker.runtime.timing import Timing, within
from tenure.worker.settings import WorkerSettings
from tenure.worker.verdict import Ack, Nack, NotTried, Reject, VerdictKind

__all__ = ["ChildFailure", "Children"]

log = logging.getLogger("tenure.worker")

_TRIES_MAX: Final = 2
"""How many children may end before they begin a job; after that the job fails."""


class ChildFailure(Exception):
    """An error that a handler raised in its process; a subclass takes the name of the error's type."""


class Children:
    """``count`` processes of one app, started before their jobs. ``missing_count`` of them are not ready.

    ``is_able`` is whether jobs can be run: False before the first child is ready, and while none lives and none can be
    started. ``on_change`` is called when a child is ready and when ``is_able`` changes.
    """

    def __init__(
        self, app_name: str, count: int, *, timing: Timing, settings: WorkerSettings, on_change: Callable[[], None]
    ) -> None:
        self._app_name = app_name
        self._count = count
        self._timing = timing
        self._settings = settings
        self._on_change = on_change
        self._idle: list[Child] = []
        self._arrival = asyncio.Event()
        self._trouble: str | None = None
        self.is_able = False
        self.missing_count = count
        self._keeping = [asyncio.create_task(self._keep()) for _ in range(count)]

    # Starting

    async def _keep(self) -> None:
        """Keep one child running: start it, and start it again after it ended."""
        failures = 0
        while True:
            try:
                start = Child.start(self._app_name, settings=self._settings)
                child = await within(self._timing, self._settings.child_start_ms, start)
            except (ChildDied, OSError, TimeoutError) as error:
                self._note_failure(error)
                failures += 1
                await self._timing.sleep_ms(self._pause_ms(failures))
                continue
            failures = 0
            self.missing_count -= 1
            try:
                self._note_start()
                self._offer(child)
                self._on_change()
                await child.process.wait()
            finally:
                self.missing_count += 1
                if child in self._idle:
                    self._idle.remove(child)
                await child.leave(self._timing, self._settings.shutdown_ms)

    def _pause_ms(self, failures: int) -> float:
        settings = self._settings
        return backoff_ms(failures, min_ms=2 * settings.reconnect_min_ms, max_ms=settings.reconnect_max_ms)

    def _note_failure(self, error: Exception) -> None:
        """Log a failed start once per reason; where no child is left, set ``is_able`` to False, so that jobs are given
        back.
        """
        is_last = self.missing_count == self._count
        if is_last:
            trouble = f"no process of {self._app_name} starts, so its jobs are left to others: {error}"
        else:
            trouble = f"a process of {self._app_name} does not start: {error}"
        if trouble != self._trouble:
            log.error("%s", trouble)
        self._trouble = trouble
        if is_last and self.is_able:
            self.is_able = False
            self._arrival.set()
            self._on_change()

    def _note_start(self) -> None:
        if self._trouble is not None:
            log.info("processes of %s start again", self._app_name)
        self._trouble = None
        self.is_able = True

    def _offer(self, child: Child) -> None:
        self._idle.append(child)
        self._arrival.set()

    # Running

    async def run(self, ctx: Context) -> None:
        """Run the handler of one job in a child, and raise what it raised; NotTried where no child can be started, and
        ChildDied where the child ended during the job. Cancelling this kills the child.
        """
        done = None
        for _ in range(_TRIES_MAX):
            child = await self._idle_child(ctx)
            try:
                done = await self._run_in(child, ctx)
            except BaseException:
                child.kill()
                raise
            if done is not None:
                self._offer(child)
                break
            child.kill()
        if done is None:
            raise ChildDied("its processes end before they begin it")
        if done.raised is not None:
            _raise(done)

    async def _idle_child(self, ctx: Context) -> Child:
        """Wait for an idle child. Raises NotTried while no child can be started, to return a job that is still ours."""
        while not self._idle:
            if self._trouble is not None and not self.is_able and not ctx.job.settled:
                raise NotTried
            self._arrival.clear()
            await self._arrival.wait()
        return self._idle.pop()

    async def _run_in(self, child: Child, ctx: Context) -> Done | None:
        """Send a job to a child, answer its requests, and return how the handler ended; None where the child ended
        before it began the job.
        """
        child.send(Run(ctx.job))
        has_begun = False
        while True:
            try:
                message = await child.read(self._settings.frame_bytes_max)
            except ChildDied:
                if has_begun:
                    raise
                return None
            match message:
                case Begun():
                    has_begun = True
                case Done():
                    return message
                case Ask():
                    child.send(Answer(await _answer(message, ctx)))
                case Ready():
                    raise ChildDied("its process said something unexpected")

    async def close(self) -> None:
        """End all children."""
        for task in self._keeping:
            task.cancel()
        await asyncio.wait(self._keeping)


async def _answer(ask: Ask, ctx: Context) -> bool:
    verdict = ask.verdict
    if verdict is None:
        try:
            await ctx.extend(ask.lease_ms or None)
        except LeaseLost:
            return False
        return True
    match verdict.kind:
        case VerdictKind.ACK:
            return await ctx.ack()
        case VerdictKind.NACK:
            return await ctx.nack(verdict.reason or "", delay=verdict.delay_ms)
        case VerdictKind.REJECT:
            return await ctx.reject(verdict.reason or "")


def _raise(done: Done) -> NoReturn:
    """Raise what the handler raised: its verdict, or an error with the name and the message of its own."""
    match done.raised:
        case "ack":
            raise Ack
        case "nack":
            raise Nack(done.message, delay=done.delay_ms)
        case "reject":
            raise Reject(done.message)
        case "cancelled":
            raise asyncio.CancelledError
        case name:
            # Named as in the child, so that the log shows the error's own name, with the child's traceback as a note.
            error = type(str(name), (ChildFailure,), {"__module__": "builtins"})(done.message)
            error.add_note(done.trace)
            raise error
