"""The app that `tenure worker` runs under chaos. Every handler writes what it saw to a file of its own process.

CHAOS_URL       the broker
CHAOS_NODE      what this worker calls itself
CHAOS_HOME      where the journals and marks are
CHAOS_LEASE_MS  the lease of both queues
CHAOS_MIB_MAX   the address space of this process, which is the memory that a handler may eat
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from tenure import App, Context
from tenure.errors import Indeterminate, LeaseLost

__all__ = ["Order", "app"]

HOME = Path(os.environ.get("CHAOS_HOME", os.devnull))
NODE = os.environ.get("CHAOS_NODE", "chaos")
LEASE_MS = int(os.environ.get("CHAOS_LEASE_MS", "1500"))
CHUNK_BYTES = 64 << 20

app = App(os.environ.get("CHAOS_URL", "http://127.0.0.1:4000"), node=NODE)
_journal = os.open(HOME / f"{NODE}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT) if HOME.is_dir() else -1

if "CHAOS_MIB_MAX" in os.environ:
    limit = int(os.environ["CHAOS_MIB_MAX"]) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Order(msgspec.Struct, omit_defaults=True):
    """One job. ``takes_ms`` is how long it runs, ``asks`` that it acks by itself to hear the answer, ``eats`` that the
    first worker to meet it runs out of memory, ``kills`` that every worker dies of it.
    """

    id: str
    takes_ms: int = 0
    asks: bool = False
    eats: bool = False
    kills: bool = False


def note(event: str, order: Order, ctx: Context, **more: Any) -> None:
    """One line; a write this small to a file opened for appending is never torn by a kill."""
    line = {"event": event, "id": order.id, "queue": ctx.queue, "seq": ctx.seq, "lease": ctx.job.lease_id}
    line |= {"node": ctx.job.node, "pid": os.getpid(), "deliveries": ctx.deliveries, "at": time.monotonic(), **more}
    os.write(_journal, json.dumps(line).encode() + b"\n")


def eat(order: Order) -> None:
    """Take memory until the kernel gives no more, and end as a process without memory does: with no word to anybody."""
    try:
        os.close(os.open(HOME / f"{order.id}.eaten", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    taken = []
    try:
        while True:
            taken.append(bytearray(CHUNK_BYTES))
    except MemoryError:
        os.abort()


@app.task("loop", lease=LEASE_MS, concurrency=20, prefetch=20, max_deliveries=0, dead_letter=None)
async def on_loop(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    try:
        if order.eats:
            eat(order)
        if order.takes_ms:
            await asyncio.sleep(order.takes_ms / 1000)
        note("end", order, ctx)
        if order.asks:
            note("asked", order, ctx, taken=await asked(ctx))
    except asyncio.CancelledError:
        note("cancelled", order, ctx, lost=ctx.lost)
        raise


async def asked(ctx: Context) -> bool | None:
    try:
        return await ctx.ack()
    except Indeterminate:
        return None


@app.task("thread", lease=LEASE_MS, concurrency=4, prefetch=8, max_deliveries=0, dead_letter=None)
def in_a_thread(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    end = time.monotonic() + order.takes_ms / 1000
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.01))
        try:
            ctx.check()
        except LeaseLost:
            note("cancelled", order, ctx, lost=True)
            raise
    note("end", order, ctx)


@app.task("poison", concurrency=1, prefetch=0, max_deliveries=3)
async def deadly(order: Order, ctx: Context) -> None:
    note("begin", order, ctx)
    if order.kills:
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", order, ctx)
