"""Processes for handlers that compute: a few children, each busy with one job, each replaced when it ends.

A child that dies, be it of a segfault, of a full memory or by somebody's hand, fails its own job and no other. One
whose job was lost or ran too long is killed, which is the only way to stop such a handler.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from tenure.errors import LeaseLost
from tenure.worker import frames
from tenure.worker.context import Context
from tenure.worker.frames import Answer, Ask, Done, FromChild, FromParent, Ready, Run
from tenure.worker.settings import WorkerSettings
from tenure.worker.timing import Timing, within
from tenure.worker.verdict import Ack, Nack, Reject, VerdictKind

__all__ = ["ChildDied", "ChildFailure", "Children"]

log = logging.getLogger("tenure.worker")


class ChildDied(Exception):
    """The process of a handler ended under it."""


class ChildFailure(Exception):
    """What a handler raised in its process; the class is named after it."""


class Child:
    """One process and the line to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, app_name: str, *, settings: WorkerSettings) -> Child:
        """Start a process; returns once it has imported the app. Raises ChildDied where it cannot."""
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenure.worker.child", str(theirs.fileno()), app_name),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        child = cls(process, *await asyncio.open_connection(sock=ours, limit=settings.frame_bytes_max))
        try:
            ready = await child.read(settings.frame_bytes_max)
            if not isinstance(ready, Ready) or ready.error is not None:
                raise ChildDied(ready.error if isinstance(ready, Ready) else "it said something unexpected")
        except BaseException:
            await child.close()
            raise
        return child

    async def read(self, bytes_max: int) -> FromChild:
        """The next message. Raises ChildDied where there is none."""
        try:
            (size,) = frames.HEAD.unpack(await self._reader.readexactly(frames.HEAD.size))
            if size > bytes_max:
                raise ChildDied(f"its process sent {size} bytes, more than {bytes_max}")
            return frames.decode_child(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise ChildDied(f"its process {_how(await self.process.wait())}") from None

    def send(self, message: FromParent) -> None:
        """Say something; a child that is gone is found out by reading."""
        self._writer.write(frames.pack(message))

    def kill(self) -> None:
        """SIGKILL."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def close(self) -> None:
        """Kill it, and let go of the line."""
        self.kill()
        await self.process.wait()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class Children:
    """``count`` processes of one app, started ahead of their jobs. ``missing_count`` of them are not there yet; when
    one comes, ``on_ready`` is called.
    """

    def __init__(
        self, app_name: str, count: int, *, timing: Timing, settings: WorkerSettings, on_ready: Callable[[], None]
    ) -> None:
        self._app_name = app_name
        self._timing = timing
        self._settings = settings
        self._on_ready = on_ready
        self._idle: list[Child] = []
        self._arrival = asyncio.Event()
        self.missing_count = count
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(count)]

    async def _keep(self) -> None:
        """Have one child at all times."""
        failures = 0
        while True:
            try:
                start = Child.start(self._app_name, settings=self._settings)
                child = await within(self._timing, self._settings.child_start_ms, start)
            except (ChildDied, OSError, TimeoutError) as error:
                failures += 1
                log.error("a process for %s could not be started: %s", self._app_name, error)
                bound_ms = min(self._settings.reconnect_max_ms, self._settings.reconnect_min_ms * 2.0**failures)
                await self._timing.sleep_ms(random.uniform(bound_ms / 2, bound_ms))
                continue
            failures = 0
            self.missing_count -= 1
            try:
                self._idle.append(child)
                self._arrival.set()
                self._on_ready()
                await child.process.wait()
            finally:
                self.missing_count += 1
                if child in self._idle:
                    self._idle.remove(child)
                await child.close()

    async def run(self, ctx: Context) -> None:
        """Run the handler of one job in a child, and raise what it raised. Cancelling this kills the child."""
        while not self._idle:
            self._arrival.clear()
            await self._arrival.wait()
        child = self._idle.pop()
        try:
            done = await self._converse(child, ctx)
        except BaseException:
            child.kill()
            raise
        self._idle.append(child)
        self._arrival.set()
        if done.raised is not None:
            _raise(done)

    async def _converse(self, child: Child, ctx: Context) -> Done:
        child.send(Run(ctx.job))
        while True:
            message = await child.read(self._settings.frame_bytes_max)
            match message:
                case Done():
                    return message
                case Ask():
                    child.send(Answer(await _answer(message, ctx)))
                case Ready():
                    raise ChildDied("its process said something unexpected")

    async def close(self) -> None:
        """End all of them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.wait(self._keepers)


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
    """What the handler raised, as far as it matters here: its verdict, or its name and what it said."""
    match done.raised:
        case "ack":
            raise Ack
        case "nack":
            raise Nack(done.said, delay=done.delay_ms)
        case "reject":
            raise Reject(done.said)
        case "cancelled":
            raise asyncio.CancelledError
        case name:
            error = type(str(name), (ChildFailure,), {})(done.said)
            error.add_note(done.trace)
            raise error


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": out of memory, or by somebody's hand" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
