"""procrastinate on PostgreSQL."""

from __future__ import annotations

import asyncio
import sys

import procrastinate
import psycopg

from bench.peers.queues.postgres import url
from bench.peers.tasks.marks import BODY, PORT, QUEUE, handled

CLIENT = "procrastinate"
NOTES = "procrastinate worker --concurrency 10 --delete-jobs always, woken by LISTEN"

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url(PORT)))
_loop = asyncio.new_event_loop()
_BATCH = 1_000


@app.task(queue=QUEUE, name="handle")
async def handle(sent_ns: int, body: str) -> None:
    """Leave a mark."""
    handled(sent_ns)


def worker() -> list[str]:
    """Return the command of the worker process."""
    command = [sys.executable, "-m", "procrastinate", "--app", f"{__name__}.app", "worker", "--queues", QUEUE]
    return [*command, "--concurrency", "10", "--delete-jobs", "always"]


def prepare() -> None:
    """Connect, and create the tables where they are not there yet."""
    _loop.run_until_complete(app.open_async())
    with psycopg.connect(url(PORT)) as connection:
        found = connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
    if found == (None,):
        _loop.run_until_complete(app.schema_manager.apply_schema_async())


def put_many(count: int) -> None:
    """Queue tasks."""
    for start in range(0, count, _BATCH):
        size = min(_BATCH, count - start)
        _loop.run_until_complete(handle.batch_defer_async(*[{"sent_ns": 0, "body": BODY}] * size))


def put(sent_ns: int) -> None:
    """Queue one task."""
    _loop.run_until_complete(handle.defer_async(sent_ns=sent_ns, body=BODY))
