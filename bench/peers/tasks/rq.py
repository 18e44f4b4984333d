"""RQ on Redis."""

from __future__ import annotations

import sys
from pathlib import Path

import redis
import rq

from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled

CLIENT = "rq"
NOTES = "rq worker with SimpleWorker, which does not fork for each job; results are not kept"

_queue = rq.Queue(QUEUE, connection=redis.Redis(port=PORT))
_BATCH = 1_000


def handle(sent_ns: int, body: str) -> None:
    """Leave a mark."""
    handled(sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    program = str(Path(sys.executable).with_name("rq"))
    url = f"redis://127.0.0.1:{PORT}/0"
    return [program, "worker", "--worker-class", "rq.SimpleWorker", "--url", url, "--quiet", QUEUE]


def prepare() -> None:
    """Nothing: a list comes with its first entry."""


def put_many(count: int) -> None:
    """Queue tasks."""
    for start in range(0, count, _BATCH):
        size = min(_BATCH, count - start)
        _queue.enqueue_many([rq.Queue.prepare_data(handle, args=(0, BODY), result_ttl=0) for _ in range(size)])


def put(sent_ns: int) -> None:
    """Queue one task."""
    _queue.enqueue(handle, sent_ns, BODY, result_ttl=0)
