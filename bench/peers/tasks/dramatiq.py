"""dramatiq on Redis."""

from __future__ import annotations

import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled

CLIENT = "dramatiq"
NOTES = "dramatiq --processes 1 --threads 8, no results"

dramatiq.set_broker(RedisBroker(url=f"redis://127.0.0.1:{PORT}/0"))


@dramatiq.actor(queue_name=QUEUE)
def handle(sent_ns: int, body: str) -> None:
    """Leave a mark."""
    handled(sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    return [sys.executable, "-m", "dramatiq", __name__, "--processes", "1", "--threads", "8", "--queues", QUEUE]


def prepare() -> None:
    """Nothing: a list comes with its first entry."""


def put_many(count: int) -> None:
    """Queue tasks."""
    for _ in range(count):
        put(0)


def put(sent_ns: int) -> None:
    """Queue one task."""
    handle.send(sent_ns, BODY)
