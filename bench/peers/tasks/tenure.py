"""Tenure's own App and worker."""

from __future__ import annotations

import sys

import msgspec

from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled
from tenure import App

CLIENT = "tenure"
NOTES = "tenure worker, defaults: fsync, acks after the handler, dead letters"

app = App(f"http://127.0.0.1:{PORT}")


class Sent(msgspec.Struct):
    """The arguments of the task."""

    sent_ns: int
    body: str


@app.task(QUEUE)
async def handle(job: Sent) -> None:
    """Leave a mark."""
    handled(job.sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    return [sys.executable, "-m", "tenure.cli.main", "worker", f"{__name__}:app", "--log-level", "warning"]


def prepare() -> None:
    """Nothing: the first put declares the queue."""


def put_many(count: int) -> None:
    """Queue tasks."""
    for start in range(0, count, 1_000):
        handle.blocking.put_many([Sent(0, BODY)] * min(1_000, count - start))


def put(sent_ns: int) -> None:
    """Queue one task."""
    handle.blocking.put(Sent(sent_ns, BODY))
