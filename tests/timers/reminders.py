"""The app that worker processes of these tests run. Its handlers write down what happens, and wait where told to."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from tenure import App, Context, Fixed

__all__ = ["Note", "app"]

_journal = os.open(os.environ.get("REMINDERS_JOURNAL", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

app = App(os.environ.get("REMINDERS_URL", "http://127.0.0.1:9"), redis=os.environ.get("REMINDERS_REDIS"))


class Note(msgspec.Struct, omit_defaults=True):
    """What a timer asks of its handler; ``gate`` is a file that it waits for."""

    n: int = 0
    gate: str = ""
    fail: str = ""


def write(event: str, note: Note, ctx: Context) -> None:
    line = {"event": event, "n": note.n, "timer_id": ctx.timer_id, "deliveries": ctx.deliveries, "pid": os.getpid()}
    os.write(_journal, json.dumps(line).encode() + b"\n")


@app.timer("reminders", lease="5s", retries=2, backoff=Fixed("10ms"), concurrency=20)
async def remind(note: Note, ctx: Context) -> None:
    write("begin", note, ctx)
    while note.gate and not Path(note.gate).exists():
        await asyncio.sleep(0.005)
    if note.fail:
        raise ValueError(note.fail)
    write("end", note, ctx)


@app.timer("threads", lease="5s")
def in_thread(note: Note, ctx: Context) -> None:
    write("begin", note, ctx)
    while note.gate and not Path(note.gate).exists():
        time.sleep(0.005)
    write("end", note, ctx)


@app.timer("processes", lease="5s", run="process", concurrency=1)
def in_process(note: Note, ctx: Context) -> None:
    write("end", note, ctx)
    if note.n == 1:
        in_process.blocking.schedule(Note(n=2))


if "REMINDERS_URL" in os.environ:

    @app.task("jobs")
    async def job(payload: dict[str, Any], ctx: Context) -> None:
        note = msgspec.convert(payload, Note)
        write("job", note, ctx)
        await remind.schedule(Note(n=note.n), timer_id=f"of-job-{note.n}")
