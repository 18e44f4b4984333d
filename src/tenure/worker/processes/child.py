"""The main program of a worker's child process: read jobs, run handlers, send the results. No pickle.

    python -m tenure.worker.processes.child FD MODULE:APP

It runs one job at a time and nothing else, so it may block on the pipe while it waits for an answer.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import io
import os
import signal
import socket
import sys
import traceback
from collections.abc import Coroutine
from typing import Any, Final

from tenure.worker.app import App
from tenure.worker.blocking import run_now
from tenure.worker.context import Context
from tenure.worker.hooks import StartupFailed
from tenure.worker.observing import logs
from tenure.worker.observing.reason import bounded, exc_info_of, reason_of
from tenure.worker.processes import frames, importing
from tenure.worker.processes.frames import Answer, Ask, Begun, Done, FromChild, FromParent, Ready, Run
from tenure.worker.runtime.job import HeldJob
from tenure.worker.runtime.timing import SystemTiming, Timing
from tenure.worker.verdict import Ack, Nack, Reject, Verdict

__all__ = ["Line", "main"]

_PR_SET_PDEATHSIG: Final = 1
_ORPHANED: Final = 1
"""The exit code of a child whose worker is gone."""
_TRACE_BYTES_MAX: Final = 16_384
# The worker renews the lease, and kills a child whose lease is lost: a deadline in the child would only mislead.
_NO_DEADLINE_MS: Final = 2**62
_HOOKS_MS: Final = 86_400_000
"""No limit here: the worker kills a child that takes too long to start or to end."""


class Line:
    """The pipe to the worker, and the `Reporter` of the handlers' contexts."""

    def __init__(self, sock: socket.socket) -> None:
        self.timing: Timing = SystemTiming()
        self._sock = sock
        self._file = sock.makefile("rb")

    def send(self, message: FromChild) -> None:
        """Send a message, or end the process where the worker is gone."""
        try:
            self._sock.sendall(frames.pack(message))
        except ConnectionError:
            sys.exit(_ORPHANED)

    def read(self) -> FromParent | None:
        """Return the next message; None where the worker is gone."""
        head = self._file.read(frames.HEAD.size)
        if len(head) < frames.HEAD.size:
            return None
        return frames.decode_parent(self._file.read(*frames.HEAD.unpack(head)))

    def _ask(self, ask: Ask) -> bool:
        self.send(ask)
        answer = self.read()
        if not isinstance(answer, Answer):
            sys.exit(_ORPHANED)
        return answer.taken

    async def settle(self, job: HeldJob, verdict: Verdict) -> bool:
        return self._ask(Ask(verdict=verdict))

    async def extend(self, job: HeldJob, lease_ms: int | None) -> bool:
        return self._ask(Ask(lease_ms=lease_ms or 0))

    def wait(self, answer: Coroutine[Any, Any, bool]) -> bool:
        """Run the coroutine, which never waits in a child."""
        return run_now(answer, refusal="a context cannot wait for something else")


def _run(app: App, message: Run, line: Line, runner: asyncio.Runner) -> Done:
    """Run one handler and return how it ended."""
    job = message.job
    job.deadline_ms = _NO_DEADLINE_MS
    task = app.handlers[job.topic].task_of(job)
    try:
        called = task.invoke(task.decode(job.data), Context(job, line))
        if inspect.isawaitable(called):
            runner.run(_await(called))
    except BaseException as error:
        return _done(error)
    return Done()


async def _await(called: Any) -> None:
    await called


def _done(error: BaseException) -> Done:
    match error:
        case Ack():
            return Done("ack")
        case Nack():
            return Done("nack", error.reason, error.delay_ms)
        case Reject():
            return Done("reject", error.reason)
        case asyncio.CancelledError():
            return Done("cancelled")
    name = type(error).__name__
    message = reason_of(error).removeprefix(name).removeprefix(": ")
    trace = "".join(traceback.format_exception(*exc_info_of(error)))
    return Done(name, message, trace=bounded(trace, _TRACE_BYTES_MAX))


def _die_with_worker(parent: int) -> None:
    """Have the kernel kill this child with its worker: a handler must not run on while its lease is not renewed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(_ORPHANED)


def main(arguments: list[str]) -> int:
    """Serve until the worker closes the pipe; returns the exit code."""
    _die_with_worker(os.getppid())
    # A signal to the whole process group is meant for the worker, which ends its children when their jobs are done.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the child may be killed: flush what handlers print
    fd, name = arguments
    line = Line(socket.socket(fileno=int(fd)))
    try:
        importing.in_child = True
        app = importing.load(name)
        logs.configure_child()
    except BaseException as error:
        line.send(Ready(error=bounded(f"{name} cannot be imported: {reason_of(error)}")))
        return 1
    with asyncio.Runner() as runner:
        return _serve(app, line, runner)


def _serve(app: App, line: Line, runner: asyncio.Runner) -> int:
    """Run hooks and jobs on one loop until the worker closes the pipe; returns the exit code."""
    try:
        runner.run(app.hooks.start(line.timing, _HOOKS_MS))
    except BaseException as error:
        line.send(Ready(error=bounded(f"{error}" if isinstance(error, StartupFailed) else reason_of(error))))
        return 1
    line.send(Ready())
    while isinstance(message := line.read(), Run):
        line.send(Begun())
        line.send(_run(app, message, line, runner))
    runner.run(app.hooks.stop(line.timing, _HOOKS_MS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
