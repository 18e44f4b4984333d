"""Run worker processes by one command under a `Supervisor`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tenure.worker.processes.place import Place
from tenure.worker.processes.supervisor import Supervisor
from tenure.worker.settings import WorkerSettings

__all__ = ["run_supervised"]

_NOTICES_BYTES: Final = 4_096


def run_supervised(command: Sequence[str], count: int, *, suspects: Sequence[str], drain_ms: int) -> int:
    """Run ``count`` workers by one command, and one for suspects by another, until SIGTERM or SIGINT; returns the exit
    code. Both commands are arguments of Python; each worker gets its place from `follow_supervisor`. ``drain_ms`` is
    how long the workers drain.
    """
    settings = msgspec.structs.replace(WorkerSettings(), drain_ms=drain_ms)
    notices, asking = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    async def start(place: Place) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *(suspects if place.on_demand else command)),
            stdin=asyncio.subprocess.DEVNULL,
            env=place.in_environment(os.environ),
            pass_fds=place.fds,
            start_new_session=True,
        )

    async def supervise() -> int:
        supervisor = Supervisor(start, count, notices=asking, settings=settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        loop.add_reader(notices, _hear, notices, supervisor)
        return await supervisor.run()

    try:
        return asyncio.run(supervise())
    finally:
        os.close(notices)
        os.close(asking)


def _hear(notices: int, supervisor: Supervisor) -> None:
    """Empty the pipe: one notice is as good as many."""
    with suppress(BlockingIOError):
        os.read(notices, _NOTICES_BYTES)
    supervisor.run_suspects()
