"""The app that the tests' workers run. Its handlers write down what happens to them, and wait where a test says so."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from tenure.worker.app import App
from tenure.worker.context import Context
from tenure.worker.options import TaskKnobs
from tenure.worker.processes import importing

__all__ = ["Order", "app"]

CHILD_GATE = os.environ.get("WORK_CHILD_GATE", "")
if importing.in_child and CHILD_GATE and not Path(CHILD_GATE).exists():
    raise RuntimeError("no child may import this yet")

JOURNAL = os.environ.get("WORK_JOURNAL", os.devnull)
_KNOBS: dict[str, TaskKnobs] = json.loads(os.environ.get("WORK_KNOBS", "{}"))
_journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

app = App(os.environ.get("WORK_URL", "http://127.0.0.1:4000"))


class Order(msgspec.Struct, omit_defaults=True):
    """What a job asks of its handler. ``gate`` is a file that it waits for."""

    n: int = 0
    gate: str = ""
    fail: str = ""
    memory_mib: int = 0
    stubborn: bool = False
    blocks_ms: int = 0


def note(event: str, order: Order, ctx: Context, **more: Any) -> None:
    """One line of the journal; a write this small to a file opened for appending is never torn."""
    line = {"event": event, "queue": ctx.queue, "n": order.n, "seq": ctx.seq, "deliveries": ctx.deliveries}
    line |= {"pid": os.getpid(), "at": time.monotonic(), **more}
    os.write(_journal, json.dumps(line).encode() + b"\n")


def is_open(order: Order) -> bool:
    return not order.gate or Path(order.gate).exists()


def knobs(queue: str) -> TaskKnobs:
    return _KNOBS.get(queue, {})


@app.task("loop", **knobs("loop"))
async def on_loop(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    if ctx.deliveries == 1:
        time.sleep(order.blocks_ms / 1000)
    while not is_open(order):
        try:
            await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            note("cancelled", order, ctx, lost=ctx.lost)
            if not order.stubborn:
                raise
    if order.fail:
        raise ValueError(order.fail)
    note("end", order, ctx)


@app.task("thread", **knobs("thread"))
def in_a_thread(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    told = False
    while not is_open(order):
        if ctx.lost and not told:
            told = True
            note("told", order, ctx)
            if not order.stubborn:
                ctx.check()
        time.sleep(0.005)
    if order.fail:
        raise ValueError(order.fail)
    note("end", order, ctx)


_process: TaskKnobs = {"run": "process", **knobs("process")}


@app.task("process", **_process)
def in_a_process(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    while not is_open(order):
        pass
    if order.memory_mib:
        bytearray(order.memory_mib << 20)
    if order.fail:
        raise ValueError(order.fail)
    note("end", order, ctx)


@app.task("other", **knobs("other"))
async def other(order: Order, ctx: Context) -> None:
    await on_loop(order, ctx)
