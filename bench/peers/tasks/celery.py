"""Celery on Redis."""

from __future__ import annotations

import sys

from celery import Celery

from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled

CLIENT = "celery"
NOTES = "celery worker --pool solo, acks_late, prefetch 128, no results, without gossip, mingle and heartbeat"

app = Celery("bench", broker=f"redis://127.0.0.1:{PORT}/0")
app.conf.update(task_default_queue=QUEUE, task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=128)


@app.task(name="handle")
def handle(sent_ns: int, body: str) -> None:
    """Leave a mark."""
    handled(sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    command = [sys.executable, "-m", "celery", "-A", __name__, "worker", "--pool", "solo", "--concurrency", "1"]
    return [*command, "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "error"]


def prepare() -> None:
    """Nothing: a list comes with its first entry."""


def put_many(count: int) -> None:
    """Queue tasks."""
    for _ in range(count):
        put(0)


def put(sent_ns: int) -> None:
    """Queue one task."""
    handle.delay(sent_ns, BODY)
