"""The app that `tenure worker` runs while its processes die. Every handler writes what it does to one journal.

DEATHS_URL       the broker
DEATHS_JOURNAL   the journal; every process appends whole lines
DEATHS_RUN       a word that the environment of every process of this worker has, so that all of them can be killed
DEATHS_KIND      how healthy jobs run: async, thread or process
DEATHS_POISON    whom a poisoned job kills: self (its worker process) or all (as a container dies)
DEATHS_LEASE_MS  the lease of both queues
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from tenure import App

__all__ = ["Line", "Order", "app"]

KIND = os.environ.get("DEATHS_KIND", "async")
LEASE_MS = int(os.environ.get("DEATHS_LEASE_MS", "30000"))
_journal = os.open(os.environ.get("DEATHS_JOURNAL", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

app = App(os.environ.get("DEATHS_URL", "http://127.0.0.1:4000"))


class Order(msgspec.Struct, omit_defaults=True):
    """One job: ``takes_ms`` is how long it runs; ``kills`` that it ends its worker after that; ``blocks`` that it stops
    the event loop meanwhile, ``once`` that it does so the first time alone.
    """

    n: int
    takes_ms: int = 0
    kills: bool = False
    blocks: bool = False
    once: bool = False


class Line(msgspec.Struct):
    """What a handler wrote down."""

    event: str
    n: int
    kills: bool
    pid: int
    at: float


def note(event: str, order: Order) -> None:
    line = Line(event, order.n, order.kills, os.getpid(), time.monotonic())
    os.write(_journal, msgspec.json.encode(line) + b"\n")


def die() -> None:
    """End this worker as the OOM killer does: the process, or all that share its container."""
    if os.environ.get("DEATHS_POISON") != "all":
        worker = os.getppid() if KIND == "process" else os.getpid()
        os.kill(worker, signal.SIGKILL)
        time.sleep(60)
    mark = f"DEATHS_RUN={os.environ['DEATHS_RUN']}".encode()
    doomed: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                doomed.append(int(path.parent.name))
    for pid in sorted(doomed, key=lambda pid: pid == os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_due(order: Order) -> bool:
    """Whether a job does what it is there for: always, or only the first time that it is run."""
    if not order.once:
        return True
    try:
        Path(f"{os.environ['DEATHS_JOURNAL']}.{order.n}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


async def run(order: Order) -> None:
    note("begin", order)
    if order.blocks:
        time.sleep(order.takes_ms / 1000)
    else:
        await asyncio.sleep(order.takes_ms / 1000)
    if order.kills and is_due(order):
        die()
    note("end", order)


def run_blocking(order: Order) -> None:
    note("begin", order)
    time.sleep(order.takes_ms / 1000)
    if order.kills:
        die()
    note("end", order)


if KIND == "async":
    app.task("healthy", lease=LEASE_MS)(run)
elif KIND == "thread":
    app.task("healthy", lease=LEASE_MS, concurrency=20)(run_blocking)
else:
    app.task("healthy", lease=LEASE_MS, run="process", concurrency=2)(run_blocking)


@app.task("other", lease=LEASE_MS)
async def other(order: Order) -> None:
    await run(order)
